//! Candidate ids: either a list, best first, or all ids not worse than a last one, which are
//! neither collected nor sorted.
//!
//! Top-k and typical sets are lists, a min-p set is not, and a top-p set is a list if it is small.
//! Invariant: the logits alone decide the form and the order in which weights are added.

use super::survey::{Candidate, Survey, better};
use crate::request::fields::TokenLogprobs;
use base::math;
use kernels::Isa;
use kernels::sampling::{RUN, Weighing, mass, weights};

/// Maximum size of a top-p set that is listed.
const MAX_LISTED: usize = 256;
/// Parts per unit of logit, whose masses locate larger top-p sets.
const PARTS_PER_UNIT: f32 = 64.0;
/// Number of parts; logits further below the best have negligible mass.
const MAX_PARTS: usize = 4096;

/// Workspace for rows of one length.
#[derive(Debug)]
pub(super) struct CandidateScratch {
    isa: Isa,
    pub survey: Survey,
    items: Vec<Candidate>,
    /// Masses of runs.
    sums: Vec<f32>,
    /// Weights of one run.
    weights: Vec<f32>,
    /// Masses of parts.
    parts: Vec<f64>,
    /// Scratch of `typical`.
    shifted: Vec<u64>,
}

impl CandidateScratch {
    pub fn new(isa: Isa, vocab_size: usize) -> Self {
        Self {
            isa,
            survey: Survey::new(isa, vocab_size),
            items: Vec::with_capacity(vocab_size),
            // One more, because `last` may split a run.
            sums: Vec::with_capacity(vocab_size.div_ceil(RUN) + 1),
            weights: vec![0.0; RUN],
            parts: vec![0.0; MAX_PARTS],
            shifted: Vec::with_capacity(vocab_size),
        }
    }
}

pub(super) struct Candidates<'a> {
    logits: &'a [f32],
    /// The worst possible member, unless there is a list.
    last: Candidate,
    listed: bool,
    workspace: &'a mut CandidateScratch,
}

impl<'a> Candidates<'a> {
    /// All of the `logits` that `workspace` surveyed last, except minus infinity. At least one must
    /// be finite.
    pub fn new(logits: &'a [f32], workspace: &'a mut CandidateScratch) -> Self {
        Self { logits, last: (f32::NEG_INFINITY, u32::MAX), listed: false, workspace }
    }

    /// Lists the `count` best and keeps only those.
    pub fn list(&mut self, count: usize) -> &[Candidate] {
        let CandidateScratch { survey, items, .. } = &mut *self.workspace;
        if !self.listed {
            survey.list_best(self.logits, count, items);
            items.truncate(items.partition_point(|item| better(item, &self.last).is_le()));
            self.listed = true;
        }
        items.truncate(count);
        items
    }

    pub fn top_k(&mut self, k: usize) {
        if k > 0 && k < self.logits.len() {
            self.list(k);
        }
    }

    /// The smallest prefix whose mass reaches `p`.
    pub fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let target = self.mass(1.0) * f64::from(p);
        if !self.listed {
            self.workspace.survey.list_best(self.logits, MAX_LISTED, &mut self.workspace.items);
            if self.list_mass(1.0) < target {
                self.last = self.last_within(target);
                return;
            }
            self.listed = true;
        }
        let (last, _) = find(self.list_weights(1.0), reaching(target));
        self.workspace.items.truncate(last + 1);
    }

    /// Keeps candidates at least `p` times as likely as the best.
    pub fn min_p(&mut self, p: f32) {
        // Minus infinity for 0, which drops nothing.
        let least = self.best() + math::ln(f64::from(p)) as f32;
        if self.listed {
            let kept = self.workspace.items.partition_point(|item| item.0 >= least);
            // The best stays, whatever the rounding.
            self.workspace.items.truncate(kept.max(1));
        } else if least > self.last.0 {
            self.last = (least, u32::MAX);
        }
    }

    /// The locally typical set of mass `p` (Meister et al., 2022): candidates whose surprise is
    /// closest to the entropy.
    pub fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.list(usize::MAX);
        let (best, log_total) = (self.best(), math::ln(self.list_mass(1.0)));
        let CandidateScratch { items, shifted, .. } = &mut *self.workspace;
        let log_prob = |item: &Candidate| f64::from(item.0 - best) - log_total;
        let entropy: f64 = items.iter().map(|i| -log_prob(i) * math::exp(log_prob(i))).sum();
        // Distances are not negative, so that they are ordered as their bits; of equals the more
        // likely comes first.
        let key = |(item, index)| {
            let distance = (-log_prob(item) - entropy).abs() as f32;
            u64::from(distance.to_bits()) << 32 | index
        };
        shifted.clear();
        shifted.extend(items.iter().zip(0..).map(key));
        let index = |key: u64| (key & u64::from(u32::MAX)) as usize;
        let probs = Ascending::new(shifted).map(|key| math::exp(log_prob(&items[index(key)])));
        let (last, _) = find(probs, reaching(f64::from(p)));
        shifted.truncate(last + 1);
        // Kept candidates move to the front in order of likelihood.
        shifted.sort_unstable_by_key(|key| index(*key));
        for (to, from) in shifted.iter().map(|key| index(*key)).enumerate() {
            items[to] = items[from];
        }
        items.truncate(last + 1);
    }

    /// Draws with probabilities at `temperature`; `uniform` in [0, 1) decides.
    pub fn draw(&mut self, temperature: f32, uniform: f64) -> u32 {
        let scale = scale(temperature);
        let target = self.mass(scale) * uniform;
        if self.listed {
            let (at, _) = find(self.list_weights(scale), target);
            return self.workspace.items[at].1;
        }
        let (at, before) = find(self.workspace.sums.iter().copied().map(f64::from), target);
        let run = self.run(at, scale);
        let (within, _) = find(run.weigh(&mut self.workspace.weights), target - before);
        (run.first + within) as u32
    }

    /// Log probabilities at `temperature` of the id `chosen`, which [`Self::draw`] returned, and of
    /// the `top` most likely ones whose probability is not 0.
    pub fn logprobs(&mut self, temperature: f32, chosen: u32, top: usize) -> TokenLogprobs {
        let (scale, best) = (scale(temperature), self.best());
        let log_total = math::ln(self.mass(scale));
        let logprob = |logit: f32| (f64::from((logit - best) * scale) - log_total).min(0.0) as f32;
        let chosen = logprob(self.logits[chosen as usize]);
        let all = self.list(top).iter().map(|&(logit, id)| (id, logprob(logit)));
        TokenLogprobs { logprob: chosen, top: all.filter(|(_, it)| is_possible(*it)).collect() }
    }

    /// The sum of weights.
    pub fn mass(&mut self, scale: f32) -> f64 {
        if self.listed {
            return self.list_mass(scale);
        }
        self.workspace.sums.clear();
        for at in 0..self.runs() {
            let run = self.run(at, scale);
            self.workspace.sums.push(run.mass());
        }
        self.workspace.sums.iter().copied().map(f64::from).sum()
    }

    fn list_mass(&self, scale: f32) -> f64 {
        self.list_weights(scale).sum()
    }

    fn list_weights(&self, scale: f32) -> impl Iterator<Item = f64> {
        let best = self.workspace.items[0].0;
        self.workspace.items.iter().map(move |item| math::exp(f64::from((item.0 - best) * scale)))
    }

    /// The best logit.
    fn best(&self) -> f32 {
        if self.listed { self.workspace.items[0].0 } else { self.workspace.survey.best }
    }

    /// The last member of the smallest prefix of the unlisted set whose mass reaches `target`.
    /// Sorts only the part of the range that contains it.
    fn last_within(&mut self, target: f64) -> Candidate {
        let best = self.best();
        // The conversion saturates: logits far below are in the last part.
        let part = |logit: f32| (((best - logit) * PARTS_PER_UNIT) as usize).min(MAX_PARTS - 1);
        self.workspace.parts.fill(0.0);
        for at in 0..self.runs() {
            let run = self.run(at, 1.0);
            let CandidateScratch { parts, weights, .. } = &mut *self.workspace;
            for (logit, weight) in run.logits.iter().zip(run.weigh(weights)) {
                parts[part(*logit)] += weight;
            }
        }
        let (boundary, before) = find(self.workspace.parts.iter().copied(), reaching(target));
        let within = self.logits.iter().zip(0..).filter(|(logit, _)| part(**logit) == boundary);
        let items = &mut self.workspace.items;
        items.clear();
        items.extend(within.map(|(logit, id)| (logit + 0.0, id)));
        items.sort_unstable_by(better);
        items.truncate(items.partition_point(|item| better(item, &self.last).is_le()));
        let weights = items.iter().map(|item| math::exp(f64::from(item.0 - best)));
        let (last, _) = find(weights, reaching(target - before));
        items[last]
    }

    /// Number of ids up to that of `last`, whose equals are members, and the number of their runs.
    fn split(&self) -> (usize, usize) {
        let split = (self.last.1 as usize).saturating_add(1).min(self.logits.len());
        (split, split.div_ceil(RUN))
    }

    /// Number of runs of the unlisted set, split after the id of `last` so that a run has one
    /// limit.
    fn runs(&self) -> usize {
        let (split, runs) = self.split();
        runs + (self.logits.len() - split).div_ceil(RUN)
    }

    fn run(&self, at: usize, scale: f32) -> LogitRun<'a> {
        let (split, runs) = self.split();
        let (first, end, least) = if at < runs {
            (at * RUN, split, self.last.0)
        } else {
            (split + (at - runs) * RUN, self.logits.len(), self.last.0.next_up())
        };
        let by = Weighing { best: self.best(), scale, least };
        LogitRun {
            isa: self.workspace.isa,
            first,
            logits: &self.logits[first..end.min(first + RUN)],
            by,
        }
    }
}

/// Keys in ascending order. As many are sorted as are taken, and at most as many again.
struct Ascending<'a> {
    keys: &'a mut [u64],
    /// Number of keys taken, and of sorted ones.
    taken: usize,
    sorted: usize,
}

impl<'a> Ascending<'a> {
    fn new(keys: &'a mut [u64]) -> Self {
        Self { keys, taken: 0, sorted: 0 }
    }
}

impl Iterator for Ascending<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.taken == self.sorted {
            let rest = &mut self.keys[self.sorted..];
            let count = self.sorted.max(MAX_LISTED).min(rest.len());
            if count < rest.len() {
                rest.select_nth_unstable(count);
            }
            rest[..count].sort_unstable();
            self.sorted += count;
        }
        self.taken += 1;
        self.keys.get(self.taken - 1).copied()
    }
}

/// Consecutive ids of an unlisted set.
struct LogitRun<'a> {
    isa: Isa,
    first: usize,
    logits: &'a [f32],
    by: Weighing,
}

impl LogitRun<'_> {
    fn mass(&self) -> f32 {
        let mut sum = 0.0;
        mass(self.isa, self.logits, self.by, &mut sum);
        sum
    }

    /// Computes its weights in `workspace`.
    fn weigh<'r>(&self, workspace: &'r mut [f32]) -> impl Iterator<Item = f64> + use<'r> {
        let workspace = &mut workspace[..self.logits.len()];
        weights(self.isa, self.logits, self.by, workspace);
        workspace.iter().copied().map(f64::from)
    }
}

/// Whether the probability is not 0 in f32.
fn is_possible(logprob: f32) -> bool {
    math::exp(f64::from(logprob)) as f32 > 0.0
}

/// The factor of logits at `temperature`. Infinity would make the weight of the best NaN.
fn scale(temperature: f32) -> f32 {
    (1.0 / temperature).min(f32::MAX)
}

/// Index of the weight at which the running sum exceeds `target`, and the sum before it. If
/// rounding leaves `target` beyond all, the last weight that is not 0.
fn find(weights: impl Iterator<Item = f64>, target: f64) -> (usize, f64) {
    let (mut sum, mut found) = (0.0, (0, 0.0));
    for (index, weight) in weights.enumerate() {
        if weight > 0.0 {
            found = (index, sum);
            sum += weight;
            if sum > target {
                break;
            }
        }
    }
    found
}

/// The target of [`find`] for the first weight with which the sum is not below `mass`.
fn reaching(mass: f64) -> f64 {
    mass.next_down()
}

#[cfg(test)]
mod tests;
