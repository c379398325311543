//! Simulations of which experts stay in memory: a recorded trace of choices is replayed over rules
//! of eviction.
//!
//! Invariant: every rule gets the same requests, in the order in which layers made them, and evicts
//! nothing that the layer needs.

mod policy;
#[cfg(test)]
mod synthetic;

use anyhow::{Result, bail};
use engine::routes::{RouteEntry, RouteGroup, RouteHeader, RouteTrace};
use policy::{ExpertUse, POLICIES, Policy, SlotCache};
use serde::Serialize;
use std::fmt::{self, Write};
use std::str::FromStr;

/// Slots whose evictions are simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlotCount {
    /// As many as this many bytes hold.
    Bytes(usize),
    /// This share of all experts.
    Share {
        /// Numerator.
        part: u32,
        /// Denominator.
        of: u32,
    },
}

impl FromStr for SlotCount {
    type Err = String;

    /// Parses a share such as 1/8.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').map(|(part, of)| (part.parse(), of.parse()));
        match numbers {
            Some((Ok(part), Ok(of))) if part > 0 && part <= of => Ok(Self::Share { part, of }),
            _ => Err(format!("expected a share such as 1/8, found {text:?}")),
        }
    }
}

impl fmt::Display for SlotCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{:.2} GiB", *bytes as f64 / f64::from(1 << 30)),
            Self::Share { part, of } => write!(f, "{part}/{of}"),
        }
    }
}

/// The results of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct EvictionReport {
    model: String,
    checkpoint: String,
    /// Steps after which a use counts half.
    half_life: f64,
    /// Rows of the steps that are counted.
    tokens: f64,
    /// Share of choices that the row before had chosen too, where steps had one row.
    repeated: Option<f64>,
    memories: Vec<MemoryResult>,
}

/// What happens with some slots.
#[derive(Clone, Debug, Serialize)]
struct MemoryResult {
    memory: String,
    slots: usize,
    slot_bytes: u64,
    policies: Vec<PolicyResult>,
}

/// What happens with a rule of eviction.
#[derive(Clone, Debug, Serialize)]
struct PolicyResult {
    policy: &'static str,
    hits: u64,
    misses: u64,
    hit_rate: Option<f64>,
    bytes_per_token: Option<f64>,
}

/// Replays `trace` with each number of slots. Hits are counted in steps all of whose rows count as
/// uses; prompts take slots as well.
///
/// # Errors
///
/// Slots for fewer experts than a row chooses in a layer, or a half-life that is not positive.
pub fn simulate_evictions(
    trace: &RouteTrace,
    memories: &[SlotCount],
    half_life: f64,
) -> Result<EvictionReport> {
    if !(half_life > 0.0 && half_life.is_finite()) {
        bail!("--half-life: expected more than 0 steps, found {half_life}");
    }
    let classes = Classes::of(&trace.header);
    let decodes = decoding_steps(trace);
    let tokens = rows(trace, &decodes);
    let mut results = Vec::new();
    for memory in memories {
        let slots = classes.slots(*memory);
        let least = trace.header.chosen as usize;
        if let Some((class, slots)) = slots.iter().enumerate().find(|(_, slots)| **slots < least) {
            let bytes = classes.bytes[class];
            bail!(
                "{memory}: expected slots for the {least} experts of {bytes} bytes that a row chooses \
                 in a layer, found {slots}"
            );
        }
        let result = |policy: &Policy| {
            let counts = replay(trace, &classes, &slots, (policy, half_life), &decodes);
            counts.result(policy.name, tokens)
        };
        results.push(MemoryResult {
            memory: memory.to_string(),
            slots: slots.iter().sum(),
            slot_bytes: slots.iter().zip(&classes.bytes).map(|(n, size)| *n as u64 * size).sum(),
            policies: POLICIES.iter().map(result).collect(),
        });
    }
    Ok(EvictionReport {
        model: trace.header.model.clone(),
        checkpoint: trace.header.checkpoint.clone(),
        half_life,
        tokens,
        repeated: repeated(trace, &decodes),
        memories: results,
    })
}

/// Layers whose experts take the same memory; their slots hold experts of any of them.
struct Classes {
    /// The class of each layer.
    of_layer: Vec<usize>,
    /// Bytes of a slot of each.
    bytes: Vec<u64>,
    /// Experts of each.
    experts: Vec<usize>,
}

impl Classes {
    fn of(header: &RouteHeader) -> Self {
        let mut classes = Self { of_layer: Vec::new(), bytes: Vec::new(), experts: Vec::new() };
        for size in &header.slot_bytes {
            let class = classes.bytes.iter().position(|bytes| bytes == size);
            let class = class.unwrap_or_else(|| {
                classes.bytes.push(*size);
                classes.experts.push(0);
                classes.bytes.len() - 1
            });
            classes.of_layer.push(class);
            classes.experts[class] += header.experts as usize;
        }
        classes
    }

    /// The slots of each class, in proportion to the bytes of its experts.
    fn slots(&self, memory: SlotCount) -> Vec<usize> {
        let sizes = || self.bytes.iter().zip(&self.experts);
        let all: u128 = sizes().map(|(size, count)| u128::from(*size) * *count as u128).sum();
        let slots = |(size, count): (&u64, &usize)| match memory {
            SlotCount::Bytes(bytes) => {
                let bytes = bytes as u128 * (u128::from(*size) * *count as u128) / all;
                ((bytes / u128::from(*size)) as usize).min(*count)
            }
            SlotCount::Share { part, of } => {
                (*count as u128 * u128::from(part) / u128::from(of)) as usize
            }
        };
        sizes().map(slots).collect()
    }
}

/// Whether each group belongs to a step all of whose rows count.
fn decoding_steps(trace: &RouteTrace) -> Vec<bool> {
    let mut decodes = Vec::with_capacity(trace.groups.len());
    for step in trace.groups.chunk_by(|a, b| a.step == b.step) {
        let mut entries = step.iter().flat_map(|group| entries(trace, group));
        let all = entries.all(|entry| entry.others == 0);
        decodes.extend(step.iter().map(|_| all));
    }
    decodes
}

fn entries<'a>(trace: &'a RouteTrace, group: &RouteGroup) -> &'a [RouteEntry] {
    &trace.entries[group.entries.clone()]
}

/// Rows of the steps that are counted.
fn rows(trace: &RouteTrace, decodes: &[bool]) -> f64 {
    let RouteHeader { chosen, layers, .. } = &trace.header;
    let groups = trace.groups.iter().zip(decodes).filter(|(_, decodes)| **decodes);
    let uses = groups.flat_map(|(group, _)| entries(trace, group));
    let uses: u64 = uses.map(|entry| u64::from(entry.counted)).sum();
    uses as f64 / (f64::from(*chosen) * layers.len() as f64)
}

/// The share of choices that the layer had made in the step before as well, where both steps had
/// one row.
fn repeated(trace: &RouteTrace, decodes: &[bool]) -> Option<f64> {
    let mut before = vec![&[][..]; trace.header.layers.len()];
    let (mut same, mut all) = (0_u64, 0_u64);
    for (group, decodes) in trace.groups.iter().zip(decodes) {
        let now = entries(trace, group);
        let one = *decodes && now.len() == trace.header.chosen as usize;
        let last = std::mem::replace(&mut before[group.layer], if one { now } else { &[] });
        if one && !last.is_empty() {
            let held = |entry: &&RouteEntry| last.iter().any(|it| it.expert == entry.expert);
            same += now.iter().filter(held).count() as u64;
            all += now.len() as u64;
        }
    }
    (all > 0).then(|| same as f64 / all as f64)
}

/// Hits and misses of the steps that are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    hits: u64,
    misses: u64,
    read_bytes: u64,
}

impl Counts {
    fn result(self, policy: &'static str, tokens: f64) -> PolicyResult {
        let Self { hits, misses, read_bytes } = self;
        let any = hits + misses > 0;
        PolicyResult {
            policy,
            hits,
            misses,
            hit_rate: any.then(|| hits as f64 / (hits + misses) as f64),
            bytes_per_token: any.then(|| read_bytes as f64 / tokens),
        }
    }
}

/// Replays a trace over a rule of eviction.
fn replay(
    trace: &RouteTrace,
    classes: &Classes,
    slots: &[usize],
    (policy, half_life): (&Policy, f64),
    decodes: &[bool],
) -> Counts {
    let RouteHeader { experts, read_bytes, .. } = &trace.header;
    let experts = *experts as usize;
    let mut values = (policy.values)(trace, half_life);
    let mut caches: Vec<SlotCache> = slots.iter().map(|slots| SlotCache::new(*slots)).collect();
    let (mut counts, mut step, mut last) = (Counts::default(), 0, None);
    for (group, decodes) in trace.groups.iter().zip(decodes) {
        let entries = entries(trace, group);
        // As the engine does, steps are counted in which rows count as uses.
        let is_new = last.replace(group.step) != Some(group.step);
        step += u64::from(is_new && entries.iter().any(|entry| entry.counted > 0));
        let number = |entry: &RouteEntry| group.layer * experts + entry.expert as usize;
        for (at, entry) in group.entries.clone().zip(entries) {
            let rows = entry.counted as usize;
            values.used(&ExpertUse { at, expert: number(entry), rows, step });
        }
        let cache = &mut caches[classes.of_layer[group.layer]];
        for wave in entries.chunks(cache.slots()) {
            let missed = cache.take(wave.iter().map(number), &*values);
            if *decodes {
                counts.misses += missed as u64;
                counts.hits += (wave.len() - missed) as u64;
                counts.read_bytes += missed as u64 * read_bytes[group.layer];
            }
        }
    }
    counts
}

impl EvictionReport {
    /// The report as a table.
    pub fn to_table(&self) -> String {
        let Self { model, tokens, half_life, repeated, .. } = self;
        let mut text = format!("{model}: {tokens:.0} decoded rows");
        if let Some(share) = repeated {
            let _ = write!(text, ", {:.0} % of choices as the row before", 100.0 * share);
        }
        let _ = write!(
            text,
            "; uses count half after {half_life} steps\n\n{:12}{:>8}",
            "memory", "slots"
        );
        for policy in &POLICIES {
            let _ = write!(text, "{:>10}{:>12}", policy.name, "MB/token");
        }
        text.push('\n');
        for MemoryResult { memory, slots, policies, .. } in &self.memories {
            let _ = write!(text, "{memory:12}{slots:>8}");
            for PolicyResult { hit_rate, bytes_per_token, .. } in policies {
                let rate = hit_rate.map_or("-".to_owned(), |rate| format!("{:.1} %", 100.0 * rate));
                let bytes = bytes_per_token.map_or("-".to_owned(), |it| format!("{:.1}", it / 1e6));
                let _ = write!(text, "{rate:>10}{bytes:>12}");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::synthetic::{DRIFTING, EVEN, SKEWED, Synthetic};
    use super::*;
    use engine::routes::RouteTrace;

    const SHARES: [SlotCount; 3] = [
        SlotCount::Share { part: 1, of: 8 },
        SlotCount::Share { part: 1, of: 4 },
        SlotCount::Share { part: 1, of: 2 },
    ];

    fn hits(trace: &RouteTrace, shares: &[SlotCount]) -> Vec<[PolicyResult; 3]> {
        let report = simulate_evictions(trace, shares, 8.0).unwrap();
        let memories = report.memories.into_iter();
        memories.map(|memory| memory.policies.try_into().unwrap()).collect()
    }

    fn check_bars(synthetic: &Synthetic, repeated: f64, least: [f64; 3]) {
        let trace = synthetic.trace(1);
        let report = simulate_evictions(&trace, &SHARES, 8.0).unwrap();
        let text = report.to_table();
        let found = report.repeated.unwrap();
        assert!((found - repeated).abs() < 0.02, "{found}\n{text}");
        for (policies, least) in hits(&trace, &SHARES).iter().zip(least) {
            let [belady, lru, ours] = policies;
            let choices = |it: &PolicyResult| it.hits + it.misses;
            assert_eq!([choices(belady), choices(lru)], [choices(ours); 2]);
            assert!(ours.hits <= belady.hits && lru.hits <= belady.hits, "{text}");
            assert!(ours.hits as f64 >= least * belady.hits as f64, "{text}");
            assert!(ours.misses as f64 <= 1.02 * lru.misses as f64, "{text}");
        }
    }

    #[test]
    fn heat_is_close_to_what_is_possible_and_no_worse_than_recency() {
        check_bars(&SKEWED, 0.41, [0.70, 0.82, 0.92]);
        check_bars(&DRIFTING, 0.36, [0.70, 0.82, 0.92]);
        check_bars(&EVEN, 0.09, [0.0; 3]);
    }

    /// A trace of one layer in which each step chooses one expert.
    fn single(chosen: &[u32]) -> RouteTrace {
        let layer = |expert: &u32| vec![vec![(*expert, 1, 0)]];
        synthetic::trace_of(&[4096], 8, 1, chosen.iter().map(layer))
    }

    #[test]
    fn each_rule_evicts_what_it_says() {
        let slots = [SlotCount::Bytes(2 * 4096)];
        // Belady keeps 0, which comes again first; recency loses each before it comes again.
        let [belady, lru, _] = &hits(&single(&[0, 1, 2, 0, 1, 3, 0, 1]), &slots)[0];
        assert_eq!((belady.hits, lru.hits), (2, 0));
        // Expert 0 was used twice, and stays although expert 1 was used last.
        let [_, lru, ours] = &hits(&single(&[0, 0, 1, 2, 0]), &slots)[0];
        assert_eq!((lru.hits, ours.hits), (1, 2));
        assert_eq!(ours.bytes_per_token, Some(3.0 * 4096.0 / 5.0));
    }

    #[test]
    fn prompts_take_slots_and_are_not_counted() {
        let prompt = vec![(0..6).map(|expert| (expert, 0, 9)).collect::<Vec<_>>()];
        let steps = [prompt, vec![vec![(5, 1, 0)]], vec![vec![(0, 1, 0)]]];
        let trace = synthetic::trace_of(&[4096], 8, 1, steps.into_iter());
        let [_, lru, _] = &hits(&trace, &[SlotCount::Share { part: 1, of: 2 }])[0];
        assert_eq!((lru.hits, lru.misses), (1, 1), "waves leave the last experts of a prompt");
    }

    #[test]
    fn slots_are_shared_out_by_bytes_and_too_few_are_an_error() {
        let steps = std::iter::once(vec![vec![(0, 1, 0), (1, 1, 0)]; 3]);
        let trace = synthetic::trace_of(&[4096, 8192, 4096], 8, 2, steps);
        let report = |memory| simulate_evictions(&trace, &[memory], 8.0);
        // Two layers of 8 experts of a page, one of 8 experts of two pages.
        let held = report(SlotCount::Bytes(20 * 4096)).unwrap().memories.remove(0);
        assert_eq!((held.slots, held.slot_bytes), (10 + 5, 20 * 4096));
        let error = report(SlotCount::Bytes(6 * 4096)).unwrap_err().to_string();
        assert!(error.contains("8192 bytes") && error.contains("found 1"), "{error}");
        assert!(simulate_evictions(&trace, &[], 0.0).is_err());
        for wrong in ["", "1", "0/3", "3/2", "a/b", "1/0"] {
            assert!(wrong.parse::<SlotCount>().is_err(), "{wrong}");
        }
    }
}
