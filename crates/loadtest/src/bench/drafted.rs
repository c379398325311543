//! Decoding with drafts of a known acceptance: the engine's choice of their number, with verdicts
//! by seed instead of a drafter.

use super::ids::TokenIds;
use super::measure::{Bench, Drafted, Lanes};
use anyhow::Result;
use backend::Batch;
use base::Rng;
use engine::{DraftLengths, Runner, SequenceMemory};
use std::time::{Duration, Instant};

/// Steps of each number of drafts before any is chosen.
const ROUNDS: usize = 2;

/// Sequences of which each accepts drafts of its own.
struct DraftedSequences {
    batch: Batch,
    memory: Vec<SequenceMemory>,
    ids: TokenIds,
    /// Tokens of each, and how many of them are drafts of the last step.
    lens: Vec<(usize, usize)>,
    /// Probability that the draft at each place comes out, if those before it did.
    acceptance: Vec<f32>,
    rng: Rng,
}

impl Bench<'_> {
    /// Decodes `batch` sequences after `depth` tokens for each run of the plan, with as many drafts
    /// as the engine chooses at the plan's acceptance. Returns the rates of the runs.
    ///
    /// # Errors
    /// If a step of the model fails.
    pub fn decode_drafted(&mut self, depth: usize, batch: usize) -> Result<(Vec<f64>, Drafted)> {
        let acceptance = self.plan.synthetic_acceptance.clone();
        let most = acceptance.len();
        let mut choice = DraftLengths::new(batch, &acceptance);
        let mut lanes = Lanes::new(self.runner, batch, &self.ids);
        lanes.feed(self.runner, depth.max(1), self.plan.chunk)?;
        let mut sequences = DraftedSequences::new(lanes, acceptance);
        for drafts in (0..ROUNDS).flat_map(|_| 0..=most) {
            sequences.shorten(depth.max(1));
            let (rows, took, _) = sequences.step(self.runner, &vec![drafts; batch])?;
            choice.observe(rows, took);
        }
        let (mut rates, mut lengths) = (Vec::new(), Vec::new());
        let mut drafted = Drafted { steps: vec![0; most + 1], promised: 0.0 };
        for _ in 0..self.plan.runs {
            self.probe.sample();
            sequences.shorten(depth.max(1));
            let (mut tokens, start) = (0, Instant::now());
            while tokens < batch * self.plan.generate {
                choice.choose(&mut lengths);
                let (rows, took, given) = sequences.step(self.runner, &lengths)?;
                choice.observe(rows, took);
                lengths.iter().for_each(|length| drafted.steps[*length] += 1);
                tokens += given;
            }
            rates.push(tokens as f64 / start.elapsed().as_secs_f64());
        }
        drafted.promised = choice.promised();
        Ok((rates, drafted))
    }
}

impl DraftedSequences {
    /// Sequences that continue those of `lanes`.
    fn new(lanes: Lanes, acceptance: Vec<f32>) -> Self {
        let Lanes { batch, memory, ids, len, .. } = lanes;
        let lens = vec![(len, 0); memory.len()];
        Self { batch, memory, ids, lens, acceptance, rng: Rng::new(1) }
    }

    /// Drops all but the first `len` tokens of each sequence. States keep what they have: times do
    /// not depend on them.
    fn shorten(&mut self, len: usize) {
        self.lens.fill((len, 0));
    }

    /// Computes a step with so many drafts of each sequence. Returns its rows, its time, and the
    /// tokens that it gives.
    fn step(&mut self, runner: &mut Runner, lengths: &[usize]) -> Result<(usize, Duration, usize)> {
        self.batch.clear();
        let each = self.memory.iter_mut().zip(&self.lens).zip(lengths).enumerate();
        for (number, ((memory, &(len, right)), &drafts)) in each {
            let ids = self.ids.next(1 + drafts, len + number * 31);
            let parts = ids.split_at(1);
            memory.push_with(&mut self.batch, [parts.0, parts.1], len, (right, 1 + drafts));
        }
        let start = Instant::now();
        runner.forward(&self.batch)?;
        let took = start.elapsed();
        let mut given = 0;
        for (len, &drafts) in self.lens.iter_mut().zip(lengths) {
            let accepted = self.acceptance[..drafts]
                .iter()
                .take_while(|chance| self.rng.uniform() < f64::from(**chance))
                .count();
            *len = (len.0 + 1 + accepted, accepted);
            given += 1 + accepted;
        }
        Ok((self.batch.rows(), took, given))
    }
}
