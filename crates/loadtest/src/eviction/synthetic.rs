//! Traces of routers that are not even: some experts are chosen more, and topics come and go.

use base::Rng;
use engine::routes::{RouteEntry, RouteGroup, RouteHeader, RouteTrace};

/// A router whose logits are sums of normal values.
pub(super) struct Synthetic {
    /// Deviation of what each expert always has.
    lasting: f32,
    /// Deviation of what an expert has for a topic.
    topic: f32,
    /// Share of a topic that remains from a token to the next.
    kept: f32,
}

/// Some experts are chosen much more than others.
pub(super) const SKEWED: Synthetic = Synthetic { lasting: 1.25, topic: 1.15, kept: 0.95 };
/// Which experts are chosen more changes over time.
pub(super) const DRIFTING: Synthetic = Synthetic { lasting: 0.6, topic: 1.3, kept: 0.98 };
/// Experts are chosen about equally.
pub(super) const EVEN: Synthetic = Synthetic { lasting: 0.35, topic: 0.0, kept: 0.0 };

const LAYERS: usize = 8;
const EXPERTS: usize = 128;
const CHOSEN: usize = 8;
const TOKENS: usize = 1200;

impl Synthetic {
    pub fn trace(&self, seed: u64) -> RouteTrace {
        let mut rng = Rng::new(seed);
        let mut normal = |deviation: f32| rng.normal() * deviation;
        let all = LAYERS * EXPERTS;
        let lasting: Vec<f32> = (0..all).map(|_| normal(self.lasting)).collect();
        let mut topic: Vec<f32> = (0..all).map(|_| normal(self.topic)).collect();
        let change = self.topic * (1.0 - self.kept * self.kept).sqrt();
        let mut steps = Vec::new();
        for _ in 0..TOKENS {
            topic.iter_mut().for_each(|value| *value = self.kept * *value + normal(change));
            let logits = lasting.iter().zip(&topic).map(|(a, b)| a + b + normal(1.0));
            let logits: Vec<f32> = logits.collect();
            let choose = |logits: &[f32]| -> Vec<(u32, u32, u32)> {
                let mut order: Vec<u32> = (0..EXPERTS as u32).collect();
                order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
                order.truncate(CHOSEN);
                order.sort_unstable();
                order.into_iter().map(|expert| (expert, 1, 0)).collect()
            };
            steps.push(logits.chunks_exact(EXPERTS).map(choose).collect());
        }
        trace_of(&[4096; LAYERS], EXPERTS as u32, CHOSEN as u32, steps.into_iter())
    }
}

/// A trace of steps, each of which has for each layer its experts with their rows.
pub(super) fn trace_of(
    slot_bytes: &[u64],
    experts: u32,
    chosen: u32,
    steps: impl Iterator<Item = Vec<Vec<(u32, u32, u32)>>>,
) -> RouteTrace {
    let header = RouteHeader {
        gannet_routes: 1,
        checkpoint: "synthetic".into(),
        model: "synthetic".into(),
        layers: (0..slot_bytes.len() as u32).collect(),
        experts,
        chosen,
        slot_bytes: slot_bytes.to_vec(),
        read_bytes: slot_bytes.to_vec(),
    };
    let mut trace = RouteTrace { header, groups: Vec::new(), entries: Vec::new() };
    for (step, layers) in (0..).zip(steps) {
        for (layer, uses) in layers.into_iter().enumerate() {
            let start = trace.entries.len();
            let entry = |(expert, counted, others)| RouteEntry { expert, counted, others };
            trace.entries.extend(uses.into_iter().map(entry));
            trace.groups.push(RouteGroup { step, layer, entries: start..trace.entries.len() });
        }
    }
    trace
}
