//! Tests of the scheduler with a model of the KV cache: whenever a row reads a slot of a block, the
//! content of the slot is compared with what it should hold.

mod failures;
mod led;
mod lookups;
mod order;
mod parts;
mod restoring;
mod simulation;

use super::*;
use crate::PromptOutput;
use crate::cache::Unreached;
use crate::group::GroupCache;
use crate::restore::RestorePlace;
use crate::restore_plan::StoredParts;
use std::collections::{HashMap, VecDeque};

/// Limits of a model with one group without a window, of 100 blocks.
pub fn limits() -> SchedulerLimits {
    let groups = group(100, None);
    SchedulerLimits {
        running: 3,
        rows: 8,
        logits: 3,
        flights: 1,
        block: 4,
        groups,
        states: 0,
        state_every: 0,
    }
}

/// The only group of a model.
pub fn group(blocks: usize, window: Option<usize>) -> Vec<Group> {
    vec![Group { window, blocks }]
}

/// A KV cache that holds, for each slot of a block of a group, a hash of the space of the sequence
/// and of all tokens up to and including its own; and states that hold such a hash and the drafts
/// that are not part of it yet.
pub struct Machine {
    pub scheduler: Scheduler,
    slots: HashMap<(usize, u32, usize), u64>,
    states: HashMap<u32, State>,
    limits: SchedulerLimits,
    /// Number of rows computed.
    pub rows: usize,
    /// Number of blocks copied.
    pub copied: usize,
    /// Number of snapshots taken by steps.
    pub saved: usize,
    /// Number of delivered outputs of prompt rows, where all rows need outputs.
    delivered: HashMap<u64, usize>,
    spaces: HashMap<u64, [u8; 16]>,
    /// Numbers of sequences by slot, and slots of the sequences that wait or run.
    ids: HashMap<Slot, u64>,
    live: HashMap<u64, Slot>,
    /// From where waiting sequences are to continue, and what they expect for it from outside.
    expected: HashMap<u64, (usize, VecDeque<RestorePlace>)>,
    /// Number of full blocks, of blocks in part, and of states that came from outside.
    pub restored: [usize; 3],
}

/// Content of a state slot.
#[derive(Clone, Debug, Default)]
struct State {
    hash: u64,
    guesses: Vec<u32>,
}

/// A token that no sequence has.
const GARBAGE: u32 = 99_999;

fn mix(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// The largest position at which the cache holds all that a sequence needs to continue, found by
/// looking at all of them.
fn longest(sequence: &Sequence, cache: &Cache) -> usize {
    let (chain, most) = (&sequence.chain, sequence.most_found());
    // Positions of each block that the group holds, block by block.
    let held = |group: &GroupCache| -> Vec<usize> {
        let shared = |index| group.nearest(chain, index, most).map_or(0, |found| found.shared);
        let is_full = |index| group.full(chain, index).is_some();
        let count = |index| if is_full(index) { cache.block } else { shared(index) };
        (0..=most / cache.block).map(count).collect()
    };
    let held: Vec<_> = cache.groups.iter().map(|group| (group.window, held(group))).collect();
    let sees_all = |(window, held): &(Option<usize>, Vec<usize>), position: usize| {
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        (first..position).all(|seen| {
            let index = seen / cache.block;
            held[index] >= cache.block.min(position - index * cache.block)
        })
    };
    let can_continue = |position: usize| {
        let snapshot = cache.states.nearest(chain, position);
        let state = cache.states.is_empty() || snapshot.is_some_and(|(_, at)| at == position);
        (state || position == 0) && held.iter().all(|held| sees_all(held, position))
    };
    (0..=most).rev().find(|&position| can_continue(position)).unwrap_or(0)
}

impl Machine {
    pub fn new(limits: SchedulerLimits) -> Self {
        let scheduler = Scheduler::new(limits.clone(), Name::root(b"test"));
        let (slots, states, delivered, spaces, ids, live, expected) = Default::default();
        Self {
            scheduler,
            slots,
            states,
            limits,
            rows: 0,
            copied: 0,
            saved: 0,
            delivered,
            spaces,
            ids,
            live,
            expected,
            restored: [0; 3],
        }
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
        *delivered = (*delivered).max(sequence.known);
        if sequence.output == PromptOutput::Nothing {
            assert_eq!(planned.outputs, 0, "{planned:?}");
            return;
        }
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
        for BlockCopy { group, from, to } in self.scheduler.copies() {
            assert_ne!(from, to, "a copy of a block to itself");
            self.copied += 1;
            for slot in 0..self.limits.block {
                match self.slots.get(&(group, from, slot)).copied() {
                    Some(hash) => self.slots.insert((group, to, slot), hash),
                    None => self.slots.remove(&(group, to, slot)),
                };
            }
        }
        for StateCopy { from, to } in self.scheduler.state_copies() {
            assert_ne!(from, to, "a copy of a state to itself");
            let state = self.states.get(&from).expect("a snapshot was written").clone();
            self.states.insert(to, state);
        }
    }

    /// Hash of the space of a sequence and of tokens from position 0 on.
    fn hash(&self, id: u64, tokens: &[u32]) -> u64 {
        let space = self.spaces[&id].iter().fold(0, |hash, byte| mix(hash, (*byte).into()));
        tokens.iter().fold(space, |hash, token| mix(hash, *token))
    }

    /// Computes what is planned: checks all slots that the rows see and writes their own. Drafts
    /// that are not `accepted` write garbage.
    pub fn forward(&mut self, planned: &Planned, accepted: &[u32]) {
        self.take_outputs(planned);
        let View { tokens, .. } = self.scheduler.sequence(planned.slot);
        let mut tokens = tokens.to_vec();
        tokens.truncate(planned.position + planned.tokens);
        self.fold(planned, &tokens, accepted);
        tokens.extend(accepted);
        self.rows += tokens.len() - planned.position;
        for group in 0..self.limits.groups.len() {
            self.compute_rows(group, planned, &tokens);
        }
    }

    fn compute_rows(&mut self, group: usize, planned: &Planned, tokens: &[u32]) {
        let table = self.scheduler.sequence(planned.slot).tables[group].clone();
        let block = self.limits.block;
        let slot = |position: usize| (group, table[position / block], position % block);
        let mut hash = self.hash(self.id(planned), &[]);
        for (position, token) in tokens.iter().enumerate() {
            hash = mix(hash, *token);
            if position >= planned.position {
                self.slots.insert(slot(position), hash);
                // As kernels do that store two rows together.
                if position % 2 == 0 && position % block + 1 < block {
                    self.slots.insert(slot(position + 1), 13);
                }
                continue;
            }
            let window = self.limits.groups[group].window;
            let seen = window.is_none_or(|window| position + window > planned.position);
            if seen {
                let known = self.slots.get(&slot(position));
                assert_eq!(known, Some(&hash), "{position} in {group}: {planned:?}");
            }
        }
        for draft in tokens.len()..planned.position + planned.tokens + planned.drafts {
            self.slots.insert(slot(draft), 13);
        }
    }

    /// Folds the drafts of the last step that were right and the known `tokens` into the state,
    /// takes snapshots, and leaves the drafts of this step.
    fn fold(&mut self, planned: &Planned, tokens: &[u32], accepted: &[u32]) {
        let View { state, .. } = self.scheduler.sequence(planned.slot);
        let Some(state) = state else { return };
        let Planned { position, drafts, right, .. } = *planned;
        let folded = position - right;
        let before = self.hash(self.id(planned), &tokens[..folded]);
        let mut now = self.states.remove(&state).unwrap_or_default();
        assert!(folded == 0 || now.hash == before, "state {state} after {folded}: {planned:?}");
        assert_eq!(now.guesses.get(..right).unwrap_or_default(), &tokens[folded..position]);
        for save in self.scheduler.saves(planned) {
            assert!((position..tokens.len()).contains(&save.position), "{save:?}: {planned:?}");
            let hash = self.hash(self.id(planned), &tokens[..=save.position]);
            self.states.insert(save.state, State { hash, guesses: vec![GARBAGE] });
            self.saved += 1;
        }
        now.hash = self.hash(self.id(planned), tokens);
        now.guesses = accepted.to_vec();
        now.guesses.resize(drafts, GARBAGE);
        self.states.insert(state, now);
    }

    /// Computes what is planned up to a failure: rows are what they should be, states are not.
    pub fn fail(&mut self, plan: &[Planned]) {
        for planned in plan {
            let View { tokens, state, .. } = self.scheduler.sequence(planned.slot);
            let tokens = tokens[..planned.position + planned.tokens].to_vec();
            for group in 0..self.limits.groups.len() {
                self.compute_rows(group, planned, &tokens);
            }
            let saves = self.scheduler.saves.iter().map(|save| save.state);
            for state in saves.chain(state) {
                self.states.insert(state, State { hash: 13, guesses: Vec::new() });
            }
        }
        self.scheduler.discard_uncommitted();
    }

    /// Shortens a sequence that waits for its caller.
    pub fn truncate(&mut self, id: u64, len: usize) {
        self.scheduler.truncate(self.live[&id], len);
        self.delivered.entry(id).and_modify(|delivered| *delivered = (*delivered).min(len));
    }

    /// Has a waiting sequence expect what helps it; returns whether it does.
    pub fn begin_restore(&mut self, id: u64, stored: &dyn StoredParts) -> bool {
        let Some(&slot) = self.live.get(&id) else { return false };
        let Some(plan) = self.scheduler.plan_restore(slot, stored) else { return false };
        assert!(plan.position > plan.known, "{plan:?}");
        let Some(places) = self.scheduler.begin_restore(slot, &plan) else { return false };
        self.expected.insert(id, (plan.position, places.into()));
        true
    }

    /// Writes the next place that a sequence expects; the last ends the waiting.
    pub fn arrive(&mut self, id: u64) {
        let Some((position, places)) = self.expected.get_mut(&id) else { return };
        let (position, next, is_last) = (*position, places.pop_front(), places.is_empty());
        if let (Some(place), Some(&slot)) = (next, self.live.get(&id)) {
            let tokens = self.scheduler.sequence(slot).tokens[..position].to_vec();
            self.write(id, place, &tokens);
            self.scheduler.restored(slot);
        }
        if is_last {
            self.end_restore(id);
        }
    }

    /// Writes what a place is to hold of a sequence that continues after `tokens`.
    fn write(&mut self, id: u64, place: RestorePlace, tokens: &[u32]) {
        let size = self.limits.block;
        let (kind, group, block, index) = match place {
            RestorePlace::Block { group, index, block } => (0, group, block, index),
            RestorePlace::Tail { group, block } => (1, group, block, tokens.len() / size),
            RestorePlace::State { slot } => {
                let hash = self.hash(id, tokens);
                self.states.insert(slot, State { hash, guesses: vec![GARBAGE] });
                self.restored[2] += 1;
                return;
            }
        };
        for at in 0..size {
            let position = index * size + at;
            let hash = tokens.get(..=position).map_or(13, |tokens| self.hash(id, tokens));
            self.slots.insert((group, block, at), hash);
        }
        self.restored[kind] += 1;
    }

    /// Has a sequence expect nothing more.
    pub fn end_restore(&mut self, id: u64) {
        self.expected.remove(&id);
        if let Some(&slot) = self.live.get(&id) {
            self.scheduler.end_restore(slot);
        }
    }

    /// Compares what waiting sequences find with what a look at every position finds.
    pub fn check_finds(&self) {
        let Scheduler { cache, sequences, .. } = &self.scheduler;
        for (_, sequence) in sequences.iter() {
            if sequence.phase != SequencePhase::Running {
                let found = sequence.find(cache);
                assert_eq!(found.tokens, longest(sequence, cache), "{found:?}");
            }
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
        let Scheduler { cache, sequences, saves, .. } = &self.scheduler;
        for (number, group) in cache.groups.iter().enumerate() {
            group.pool.check(sequences.iter().flat_map(|(_, sequence)| sequence.held(number)));
        }
        let taken = sequences.iter().flat_map(|(_, sequence)| sequence.states());
        cache.states.check(taken.chain(saves.iter().map(|save| save.state)));
        let mut waiting = sequences.iter().filter(|(_, s)| s.phase != SequencePhase::Running);
        assert!(waiting.all(|(_, s)| s.state.is_none() && s.tables.iter().all(Vec::is_empty)));
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
        let new = NewSequence { prompt, capacity, space, ..NewSequence::default() };
        self.cached_new(id, new)
    }

    /// The same for a request of one token or two.
    pub fn cached_new(&mut self, id: u64, new: NewSequence) -> usize {
        self.add_new(id, new);
        self.step(|_, _| 0);
        let found = self.find(id).and_then(|s| s.lookup).expect("it has one token to go");
        self.finish(1000);
        found.found
    }
}
