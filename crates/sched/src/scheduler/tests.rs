//! Tests of the scheduler with a model of the KV cache: whenever a row reads a slot of a block, the
//! content of the slot is compared with what it should hold.

mod failures;
mod order;
mod simulation;

use super::*;
use crate::PromptOutput;
use std::collections::HashMap;

pub const LIMITS: SchedulerLimits =
    SchedulerLimits { running: 3, rows: 8, logits: 3, block: 4, blocks: 100, window: None };

/// A KV cache that holds, for each slot, a hash of the space of the sequence and of all tokens up
/// to and including its own.
pub struct Machine {
    pub scheduler: Scheduler,
    slots: HashMap<(u32, usize), u64>,
    limits: SchedulerLimits,
    /// Number of rows computed.
    pub rows: usize,
    /// Number of blocks copied.
    pub copied: usize,
    /// Number of delivered outputs of prompt rows, where all rows need outputs.
    delivered: HashMap<u64, usize>,
    spaces: HashMap<u64, [u8; 16]>,
    /// Numbers of sequences by slot, and slots of the sequences that wait or run.
    ids: HashMap<Slot, u64>,
    live: HashMap<u64, Slot>,
}

fn mix(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Machine {
    pub fn new(limits: SchedulerLimits) -> Self {
        let scheduler = Scheduler::new(limits, Name::root(b"test"));
        let (slots, delivered, spaces, ids, live) = Default::default();
        Self { scheduler, slots, limits, rows: 0, copied: 0, delivered, spaces, ids, live }
    }

    pub fn add(&mut self, id: u64, prompt: &[u32], capacity: usize) {
        self.add_new(
            id,
            NewSequence { prompt: prompt.to_vec(), capacity, ..NewSequence::default() },
        );
    }

    pub fn add_new(&mut self, id: u64, new: NewSequence) {
        self.spaces.insert(id, new.space);
        let slot = self.scheduler.add(new);
        self.ids.insert(slot, id);
        self.live.insert(id, slot);
    }

    /// The sequence of this number, if it waits or runs.
    pub fn find(&self, id: u64) -> Option<&Sequence> {
        self.live.get(&id).map(|&slot| &self.scheduler.sequences[slot])
    }

    pub fn id(&self, planned: &Planned) -> u64 {
        self.ids[&planned.slot]
    }

    pub fn end(&mut self, id: u64) {
        if let Some(slot) = self.live.remove(&id) {
            self.scheduler.finish(slot);
        }
    }

    pub fn plan(&mut self) -> Vec<Planned> {
        self.plan_with(self.limits.rows, |_| true, |_| 0)
    }

    pub fn plan_with(
        &mut self,
        prompt: usize,
        ready: impl Fn(u64) -> bool,
        drafts: impl Fn(u64) -> usize,
    ) -> Vec<Planned> {
        for (&id, &slot) in &self.live {
            self.scheduler.set_ready(slot, ready(id));
            self.scheduler.offer_drafts(slot, drafts(id));
        }
        let mut plan = Vec::new();
        self.scheduler.plan(prompt, &mut plan);
        let rows: usize = plan.iter().map(|p| p.tokens + p.drafts).sum();
        let logits: usize = plan.iter().map(|p| self.logits(p) + p.drafts).sum();
        assert!(rows <= self.limits.rows && logits <= self.limits.logits, "{plan:?}");
        self.copy();
        plan
    }

    fn logits(&self, planned: &Planned) -> usize {
        let sequence = &self.scheduler.sequences[planned.slot];
        if sequence.wants_logits() { planned.outputs } else { 0 }
    }

    /// Checks that every row that needs an output gives it once, in order.
    fn take_outputs(&mut self, planned: &Planned) {
        let sequence = &self.scheduler.sequences[planned.slot];
        let end = planned.position + planned.tokens;
        let delivered = self.delivered.entry(self.ids[&planned.slot]).or_default();
        if sequence.output == PromptOutput::LastLogits || *delivered == sequence.prompt {
            assert_eq!(planned.outputs, usize::from(planned.samples), "{planned:?}");
            return;
        }
        if end > *delivered || planned.outputs > 0 {
            assert_eq!(end - planned.outputs, *delivered, "{planned:?}");
            *delivered = end;
        }
    }

    fn copy(&mut self) {
        for BlockCopy { from, to } in self.scheduler.copies() {
            assert_ne!(from, to, "a copy of a block to itself");
            self.copied += 1;
            for slot in 0..self.limits.block {
                match self.slots.get(&(from, slot)).copied() {
                    Some(hash) => self.slots.insert((to, slot), hash),
                    None => self.slots.remove(&(to, slot)),
                };
            }
        }
    }

    /// Computes what is planned: checks all slots that the rows see and writes their own. Drafts
    /// that are not `accepted` write garbage.
    pub fn forward(&mut self, planned: &Planned, accepted: &[u32]) {
        self.take_outputs(planned);
        let View { tokens, table, .. } = self.scheduler.sequence(planned.slot);
        let mut tokens = tokens.to_vec();
        tokens.truncate(planned.position + planned.tokens);
        tokens.extend(accepted);
        let slot =
            |position: usize| (table[position / self.limits.block], position % self.limits.block);
        let space = self.spaces[&self.id(planned)];
        let mut hash = space.iter().fold(0, |hash, byte| mix(hash, (*byte).into()));
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

    /// Runs one whole step in which every sequence generates `token(id, length)`; those at their
    /// capacity end. Returns the plan.
    pub fn step(&mut self, token: impl Fn(u64, usize) -> u32) -> Vec<Planned> {
        let plan = self.plan();
        for planned in &plan {
            self.forward(planned, &[]);
            let length = self.scheduler.sequence(planned.slot).tokens.len();
            let sampled = [token(self.id(planned), length)];
            self.commit(planned, if planned.samples { &sampled } else { &[] });
        }
        plan
    }

    /// Commits, and ends a sequence at its capacity.
    pub fn commit(&mut self, planned: &Planned, sampled: &[u32]) {
        self.scheduler.commit(planned, sampled);
        let View { tokens, capacity, prompt, .. } = self.scheduler.sequence(planned.slot);
        if tokens.len() == capacity {
            let id = self.id(planned);
            let delivered = self.delivered.remove(&id).unwrap_or(0);
            let output = self.scheduler.sequences[planned.slot].output;
            let is_whole = output == PromptOutput::LastLogits || delivered == prompt;
            assert!(is_whole, "a row is missing");
            self.end(id);
        }
    }

    pub fn check(&self) {
        let Scheduler { pool, sequences, running, .. } = &self.scheduler;
        pool.check(running.iter().flat_map(|&slot| sequences[slot].held()));
        let mut waiting = sequences.iter().filter(|(_, s)| s.phase != SequencePhase::Running);
        assert!(waiting.all(|(_, s)| s.table.is_empty()));
    }

    /// Steps until the scheduler is idle, at most `max` times.
    pub fn finish(&mut self, max: usize) {
        for _ in 0..max {
            if self.scheduler.is_idle() {
                return;
            }
            assert!(!self.step(|_, length| length as u32).is_empty(), "no progress");
            self.check();
        }
        panic!("it does not end");
    }

    /// Number of tokens of `prompt` that a request finds in the cache now.
    pub fn cached(&mut self, id: u64, prompt: &[u32]) -> usize {
        self.cached_in([0; 16], id, prompt)
    }

    /// The same for a request of this space.
    pub fn cached_in(&mut self, space: [u8; 16], id: u64, prompt: &[u32]) -> usize {
        let (prompt, capacity) = (prompt.to_vec(), prompt.len() + 2);
        self.add_new(id, NewSequence { prompt, capacity, space, ..NewSequence::default() });
        self.step(|_, _| 0);
        let found = self.find(id).and_then(|s| s.cached).expect("it has one token to go");
        self.finish(1000);
        found
    }
}
