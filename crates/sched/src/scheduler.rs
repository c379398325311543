//! Admission and planning of steps.

use crate::BlockPool;
use std::collections::VecDeque;

/// Names a sequence to the scheduler; chosen by the caller, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// What a step may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequences running at once.
    pub running: usize,
    /// Tokens computed in a step.
    pub step_tokens: usize,
    /// Positions of a KV block.
    pub block: usize,
}

/// Work of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Whose.
    pub id: SequenceId,
    /// Position of the first token to compute.
    pub position: usize,
    /// Tokens to compute.
    pub tokens: usize,
    /// Whether the last of them is the sequence's newest, so that a token can be sampled.
    pub samples: bool,
}

#[derive(Clone, Debug)]
struct Sequence {
    id: SequenceId,
    /// Tokens known: prompt and generated.
    tokens: usize,
    /// Tokens computed, that is in the KV cache.
    computed: usize,
    /// Most tokens it may ever have.
    capacity: usize,
    blocks: Vec<u32>,
}

/// First come, first served.
#[derive(Clone, Debug)]
pub struct Scheduler {
    limits: Limits,
    pool: BlockPool,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
}

impl Scheduler {
    /// A scheduler over a pool of `blocks` KV blocks.
    pub fn new(limits: Limits, blocks: usize) -> Self {
        assert!(limits.running > 0 && limits.step_tokens > 0 && limits.block > 0, "{limits:?}");
        Self { limits, pool: BlockPool::new(blocks), waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Most tokens a sequence can ever have.
    pub fn capacity(&self) -> usize {
        self.pool.total() * self.limits.block
    }

    /// Queues a sequence of `prompt` tokens that may grow to `capacity` in all.
    pub fn add(&mut self, id: SequenceId, prompt: usize, capacity: usize) {
        assert!(prompt > 0 && prompt <= capacity && capacity <= self.capacity(), "it can fit");
        let blocks = Vec::new();
        self.waiting.push_back(Sequence { id, tokens: prompt, computed: 0, capacity, blocks });
    }

    /// Sequences not admitted yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Fills `plan` with the next step: one token of each sequence that decodes, then prompt
    /// chunks in order of arrival, as many tokens as the step holds. Sequences for which
    /// `ready` is false stay as they are.
    pub fn plan(&mut self, ready: impl Fn(SequenceId) -> bool, plan: &mut Vec<Planned>) {
        self.admit();
        plan.clear();
        let mut left = self.limits.step_tokens;
        for decodes in [true, false] {
            for sequence in &self.running {
                let pending = sequence.tokens - sequence.computed;
                if left == 0 || (pending == 1) != decodes || !ready(sequence.id) {
                    continue;
                }
                let tokens = pending.min(left);
                left -= tokens;
                plan.push(Planned {
                    id: sequence.id,
                    position: sequence.computed,
                    tokens,
                    samples: tokens == pending,
                });
            }
        }
    }

    fn admit(&mut self) {
        while self.running.len() < self.limits.running {
            let Some(next) = self.waiting.front() else { return };
            let needed = next.capacity.div_ceil(self.limits.block);
            let Some(blocks) = self.pool.take(needed) else { return };
            let mut sequence = self.waiting.pop_front().expect("looked at above");
            sequence.blocks = blocks;
            self.running.push(sequence);
        }
    }

    /// Whether the sequence waits or runs.
    pub fn knows(&self, id: SequenceId) -> bool {
        self.running.iter().chain(&self.waiting).any(|s| s.id == id)
    }

    /// The block table of a running sequence.
    pub fn blocks(&self, id: SequenceId) -> &[u32] {
        &self.find(id).blocks
    }

    /// Takes note that `planned` was computed and, if it `samples`, that a token was appended.
    pub fn commit(&mut self, planned: Planned) {
        let sequence = self.running.iter_mut().find(|s| s.id == planned.id).expect("it runs");
        sequence.computed += planned.tokens;
        if planned.samples {
            sequence.tokens += 1;
        }
        assert!(sequence.tokens <= sequence.capacity + 1, "grew beyond what was reserved");
    }

    /// Forgets a sequence in any state and frees its blocks.
    pub fn finish(&mut self, id: SequenceId) {
        self.waiting.retain(|s| s.id != id);
        if let Some(at) = self.running.iter().position(|s| s.id == id) {
            let sequence = self.running.remove(at);
            self.pool.give_back(sequence.blocks);
        }
    }

    fn find(&self, id: SequenceId) -> &Sequence {
        self.running.iter().find(|s| s.id == id).expect("it runs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    const LIMITS: Limits = Limits { running: 3, step_tokens: 8, block: 4 };

    fn plan(scheduler: &mut Scheduler) -> Vec<Planned> {
        let mut plan = Vec::new();
        scheduler.plan(|_| true, &mut plan);
        plan
    }

    #[test]
    fn decodes_come_before_prompt_chunks() {
        let mut scheduler = Scheduler::new(LIMITS, 100);
        scheduler.add(SequenceId(1), 3, 10);
        let first = plan(&mut scheduler);
        assert_eq!(first, [Planned { id: SequenceId(1), position: 0, tokens: 3, samples: true }]);
        scheduler.commit(first[0]);
        scheduler.add(SequenceId(2), 20, 30);
        assert_eq!(
            plan(&mut scheduler),
            [
                Planned { id: SequenceId(1), position: 3, tokens: 1, samples: true },
                Planned { id: SequenceId(2), position: 0, tokens: 7, samples: false },
            ]
        );
    }

    #[test]
    fn a_large_request_is_not_overtaken_by_a_small_one() {
        let mut scheduler = Scheduler::new(LIMITS, 4);
        scheduler.add(SequenceId(1), 4, 8);
        scheduler.add(SequenceId(2), 4, 16);
        scheduler.add(SequenceId(3), 1, 2);
        assert_eq!(plan(&mut scheduler).len(), 1);
        assert_eq!(scheduler.waiting(), 2);
        scheduler.finish(SequenceId(1));
        assert_eq!(plan(&mut scheduler)[0].id, SequenceId(2));
    }

    #[test]
    fn a_sequence_whose_reader_is_slow_waits_alone() {
        let mut scheduler = Scheduler::new(LIMITS, 100);
        scheduler.add(SequenceId(1), 2, 10);
        scheduler.add(SequenceId(2), 2, 10);
        let mut plan = Vec::new();
        scheduler.plan(|id| id != SequenceId(1), &mut plan);
        assert_eq!(plan.iter().map(|p| p.id).collect::<Vec<_>>(), [SequenceId(2)]);
    }

    /// Random arrivals, lengths and cancels. Replay one seed with `simulate(seed)`.
    fn simulate(seed: u64) -> Vec<Planned> {
        let mut rng = Rng::new(seed);
        let mut scheduler = Scheduler::new(LIMITS, 1 + rng.below(12) as usize);
        let mut left: Vec<(SequenceId, usize)> = Vec::new();
        let mut trace = Vec::new();
        for step in 0..400 {
            if step < 300 && rng.below(3) == 0 {
                let capacity = 1 + rng.below(scheduler.capacity() as u64) as usize;
                let prompt = 1 + rng.below(capacity as u64) as usize;
                scheduler.add(SequenceId(step), prompt, capacity);
                left.push((SequenceId(step), capacity - prompt + 1));
            }
            if !left.is_empty() && rng.below(20) == 0 {
                let (id, _) = left.swap_remove(rng.below(left.len() as u64) as usize);
                scheduler.finish(id);
            }
            for planned in plan(&mut scheduler) {
                assert!(
                    planned.position + planned.tokens
                        <= scheduler.blocks(planned.id).len() * LIMITS.block,
                    "seed {seed}"
                );
                scheduler.commit(planned);
                let at = left.iter().position(|(id, _)| *id == planned.id).expect("alive");
                left[at].1 -= usize::from(planned.samples);
                if left[at].1 == 0 {
                    left.remove(at);
                    scheduler.finish(planned.id);
                }
                trace.push(planned);
            }
            let owned: usize = scheduler.running.iter().map(|s| s.blocks.len()).sum();
            assert_eq!(owned + scheduler.pool.free(), scheduler.pool.total(), "seed {seed}");
        }
        while !scheduler.is_idle() {
            let steps = plan(&mut scheduler);
            assert!(!steps.is_empty(), "seed {seed}: nothing moves");
            for planned in steps {
                scheduler.commit(planned);
                let at = left.iter().position(|(id, _)| *id == planned.id).expect("alive");
                left[at].1 -= usize::from(planned.samples);
                if left[at].1 == 0 {
                    scheduler.finish(left.remove(at).0);
                }
            }
        }
        trace
    }

    #[test]
    fn every_sequence_finishes_blocks_are_conserved_and_seeds_repeat() {
        for seed in 0..200 {
            assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
        }
    }
}
