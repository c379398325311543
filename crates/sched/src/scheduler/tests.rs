//! The scheduler against a machine that computes nothing but remembers everything: what each slot
//! of each block holds is compared with what it should hold whenever somebody looks at it.

mod failures;
mod order;
mod simulation;

use super::*;
use crate::PromptOutput;
use std::collections::HashMap;

pub const LIMITS: SchedulerLimits =
    SchedulerLimits { running: 3, rows: 8, logits: 3, block: 4, blocks: 100, window: None };

/// A KV cache that holds, for each slot, all tokens up to and including its own, as a hash.
pub struct Machine {
    pub scheduler: Scheduler,
    slots: HashMap<(u32, usize), u64>,
    limits: SchedulerLimits,
    /// Rows computed.
    pub rows: usize,
    /// Blocks copied.
    pub copied: usize,
    /// Rows of prompts whose results were had, where all are wanted.
    had: HashMap<SequenceId, usize>,
}

fn mix(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Machine {
    pub fn new(limits: SchedulerLimits) -> Self {
        let scheduler = Scheduler::new(limits, Name::root(b"test"));
        let (slots, had) = Default::default();
        Self { scheduler, slots, limits, rows: 0, copied: 0, had }
    }

    pub fn add(&mut self, id: u64, prompt: &[u32], capacity: usize) {
        let (id, prompt) = (SequenceId(id), prompt.to_vec());
        self.scheduler.add(NewSequence {
            id,
            prompt,
            capacity,
            priority: 0,
            tenant: 0,
            cold: false,
            output: PromptOutput::LastLogits,
        });
    }

    pub fn plan(&mut self) -> Vec<Planned> {
        self.plan_with(self.limits.rows, |_| true, |_| 0)
    }

    pub fn plan_with(
        &mut self,
        prompt: usize,
        ready: impl Fn(SequenceId) -> bool,
        drafts: impl Fn(SequenceId) -> usize,
    ) -> Vec<Planned> {
        let mut plan = Vec::new();
        self.scheduler.plan(prompt, ready, drafts, &mut plan);
        let rows: usize = plan.iter().map(|p| p.tokens + p.drafts).sum();
        let logits: usize = plan.iter().map(|p| self.logits(p) + p.drafts).sum();
        assert!(rows <= self.limits.rows && logits <= self.limits.logits, "{plan:?}");
        self.copy();
        plan
    }

    fn logits(&self, planned: &Planned) -> usize {
        let sequence = self.scheduler.find(planned.id).unwrap();
        if sequence.wants_logits() { planned.outputs } else { 0 }
    }

    /// Every row that is wanted gives its result once, in order.
    fn take_results(&mut self, planned: &Planned) {
        let sequence = self.scheduler.find(planned.id).unwrap();
        let end = planned.position + planned.tokens;
        let had = self.had.entry(planned.id).or_default();
        if sequence.output == PromptOutput::LastLogits || *had == sequence.prompt {
            assert_eq!(planned.outputs, usize::from(planned.samples), "{planned:?}");
            return;
        }
        if end > *had || planned.outputs > 0 {
            assert_eq!(end - planned.outputs, *had, "{planned:?}");
            *had = end;
        }
    }

    fn copy(&mut self) {
        for BlockCopy { from, to } in self.scheduler.copies() {
            assert_ne!(from, to, "a copy of nothing");
            self.copied += 1;
            for slot in 0..self.limits.block {
                match self.slots.get(&(from, slot)).copied() {
                    Some(hash) => self.slots.insert((to, slot), hash),
                    None => self.slots.remove(&(to, slot)),
                };
            }
        }
    }

    /// Computes what is planned: looks at all that the rows see, and writes their slots. Drafts
    /// that are not `accepted` write what nobody shall see.
    pub fn forward(&mut self, planned: &Planned, accepted: &[u32]) {
        self.take_results(planned);
        let mut tokens = self.scheduler.tokens(planned.id).to_vec();
        tokens.truncate(planned.position + planned.tokens);
        tokens.extend(accepted);
        let table = self.scheduler.table(planned.id).to_vec();
        let slot =
            |position: usize| (table[position / self.limits.block], position % self.limits.block);
        let mut hash = 0;
        for (position, token) in tokens.iter().enumerate() {
            hash = mix(hash, *token);
            if position >= planned.position {
                self.slots.insert(slot(position), hash);
                self.rows += 1;
                continue;
            }
            let seen = self.limits.window.is_none_or(|w| position + w > planned.position);
            if seen {
                assert_eq!(self.slots.get(&slot(position)), Some(&hash), "at {position}");
            }
        }
        for draft in accepted.len()..planned.drafts {
            self.slots.insert(slot(planned.position + planned.tokens + draft), 13);
        }
    }

    /// One whole step in which every sequence generates `token(id, length)`; those at their
    /// capacity end. Gives the plan.
    pub fn step(&mut self, token: impl Fn(SequenceId, usize) -> u32) -> Vec<Planned> {
        let plan = self.plan();
        for planned in &plan {
            self.forward(planned, &[]);
            let length = self.scheduler.tokens(planned.id).len();
            let sampled = [token(planned.id, length)];
            self.commit(planned, if planned.samples { &sampled } else { &[] });
        }
        plan
    }

    /// Commits, and ends a sequence that is full.
    pub fn commit(&mut self, planned: &Planned, sampled: &[u32]) {
        self.scheduler.commit(planned, sampled);
        let sequence = self.scheduler.find(planned.id).unwrap();
        if sequence.tokens.len() == sequence.capacity {
            let had = self.had.remove(&planned.id).unwrap_or(0);
            assert!(
                sequence.output == PromptOutput::LastLogits || had == sequence.prompt,
                "a row is missing"
            );
            self.scheduler.finish(planned.id);
        }
    }

    pub fn check(&self) {
        self.scheduler.pool.check(self.scheduler.running.iter().flat_map(Sequence::held));
        assert!(self.scheduler.waiting.iter().all(|s| s.table.is_empty()));
    }

    /// Steps until nothing is left, at most `most`.
    pub fn finish(&mut self, most: usize) {
        for _ in 0..most {
            if self.scheduler.is_idle() {
                return;
            }
            assert!(!self.step(|_, length| length as u32).is_empty(), "nothing moves");
            self.check();
        }
        panic!("it does not end");
    }

    /// Prompt tokens of `prompt` that a request finds in the cache when it comes now.
    pub fn cached(&mut self, id: u64, prompt: &[u32]) -> usize {
        self.add(id, prompt, prompt.len() + 2);
        self.step(|_, _| 0);
        let found = self.scheduler.cached(SequenceId(id)).expect("it has one token to go");
        self.finish(1000);
        found
    }
}
