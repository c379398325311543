//! Admission, planning of steps and bookkeeping of their results.

use crate::cache::{Cache, Match};
use crate::group::Group;
use crate::lookup::CacheLookup;
use crate::pool::BlockCounts;
use crate::sequence::{BlockCopy, NewSequence, Sequence, SequencePhase};
use crate::slot::{Slot, SlotTable};
use crate::state_pool::{StateCopy, StateCounts};
use crate::waiting::{Waiting, position};
use base::Name;

/// Limits of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Sequences that run at once.
    pub running: usize,
    /// Rows of a step.
    pub rows: usize,
    /// Rows of a step that have logits; at least `running`.
    pub logits: usize,
    /// Steps that may be under way at once, at least 1. Sequences that decode are spread evenly
    /// over them.
    pub flights: usize,
    /// Positions of a KV block.
    pub block: usize,
    /// The groups of rows. The first is the one without a window, else the one with the widest.
    pub groups: Vec<Group>,
    /// State slots: 0 where the model has no states, else at least `running`.
    pub states: usize,
    /// Positions of a prompt between snapshots besides those at its marks; 0 for none.
    pub state_every: usize,
}

/// The rows of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The sequence.
    pub slot: Slot,
    /// Position of the first row.
    pub position: usize,
    /// Rows of known tokens.
    pub tokens: usize,
    /// Rows of drafted tokens, which follow the known ones.
    pub drafts: usize,
    /// Number of rows of known tokens that need outputs: the last ones.
    pub outputs: usize,
    /// Whether the last known token is the newest of the sequence, so that its logits give a new
    /// token, and those of each draft that proves right one more.
    pub samples: bool,
    /// Number of drafted tokens of the last step that proved right, which are not part of the
    /// sequence's state yet: the ones before `position`.
    pub right: usize,
}

impl Planned {
    /// Whether a snapshot is one of these rows.
    fn saves(&self, save: &StateSave) -> bool {
        let rows = self.position..self.position + self.tokens;
        save.slot == self.slot && rows.contains(&save.position)
    }
}

/// A snapshot that a step takes of the state of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSave {
    /// The sequence.
    pub slot: Slot,
    /// The row after which the snapshot is taken, which is one of a known token.
    pub position: usize,
    /// The state slot that receives it.
    pub state: u32,
}

/// The state of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Prompt and generated tokens.
    pub tokens: &'a [u32],
    /// A block table for each group, empty unless the sequence runs. Blocks before the window of
    /// the group are `u32::MAX`.
    pub tables: &'a [Vec<u32>],
    /// The slot of its state, if it runs and the model has states.
    pub state: Option<u32>,
    /// What the cache held of the prompt when the sequence was first admitted; `None` before.
    pub lookup: Option<CacheLookup>,
    /// Tokens of the prompt that have been computed since then or found, whether they still are in
    /// the cache or not.
    pub reached: usize,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Maximum number of tokens, prompt included.
    pub capacity: usize,
}

impl View<'_> {
    /// Prompt tokens found in the cache when the sequence was first admitted.
    pub fn cached(&self) -> usize {
        self.lookup.map_or(0, |lookup| lookup.found)
    }
}

/// The rows that a step may still hold, in addition to one row with logits for each decoding
/// sequence.
#[derive(Clone, Copy, Debug)]
struct StepBudget {
    prompt: usize,
    drafts: usize,
    logits: usize,
    /// Whether no rows of prompts are planned yet.
    untouched: bool,
}

/// Continuous batching over KV blocks and states.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) limits: SchedulerLimits,
    /// Parent of first blocks in the common part of the prefix cache.
    root: Name,
    pub(crate) cache: Cache,
    pub(crate) sequences: SlotTable<Sequence>,
    /// Empty slots below the highest slot used so far.
    free: Vec<Slot>,
    waiting: Waiting,
    /// By priority, then arrival.
    pub(crate) running: Vec<Slot>,
    /// Waiting sequences that hold the state slot that they need to run.
    pub(crate) restoring: usize,
    /// Sequences whose callers choose the next tokens.
    pub(crate) led: usize,
    arrivals: u64,
    preemptions: u64,
    /// Blocks to be copied, in this order.
    pub(crate) copies: Vec<BlockCopy>,
    /// States to be copied, in this order.
    pub(crate) state_copies: Vec<StateCopy>,
    /// Snapshots of plans that are not committed.
    pub(crate) saves: Vec<StateSave>,
    /// Workspace of `plan`.
    order: Vec<Slot>,
    candidates: Vec<Slot>,
}

impl Scheduler {
    /// A scheduler over empty blocks. `root` names everything but tokens that decides the numbers.
    pub fn new(limits: SchedulerLimits, root: Name) -> Self {
        let SchedulerLimits { running, rows, logits, flights, block, states, .. } = limits;
        assert!(running > 0 && block > 0 && !limits.groups.is_empty(), "{limits:?}");
        assert!(flights > 0, "a step can be under way: {limits:?}");
        assert!(running <= logits && logits <= rows, "every sequence can decode: {limits:?}");
        assert!(states == 0 || states >= running, "every sequence has a state: {limits:?}");
        let (trunk, others) = (limits.groups[0], &limits.groups[1..]);
        assert!(others.iter().all(|it| it.window.is_some()), "one group has no window: {limits:?}");
        let is_held = |group: &Group| group.holds_window(block, trunk.blocks);
        assert!(others.iter().all(is_held), "each group holds a window: {limits:?}");
        Self {
            cache: Cache::new(block, &limits.groups, states),
            root,
            limits,
            sequences: SlotTable::default(),
            free: Vec::new(),
            waiting: Waiting::default(),
            running: Vec::with_capacity(running),
            restoring: 0,
            led: 0,
            arrivals: 0,
            preemptions: 0,
            copies: Vec::with_capacity(running),
            state_copies: Vec::with_capacity(running.min(states)),
            saves: Vec::new(),
            order: Vec::with_capacity(running),
            candidates: Vec::new(),
        }
    }

    /// Maximum number of tokens of a sequence.
    pub fn capacity(&self) -> usize {
        self.limits.groups[0].blocks * self.limits.block
    }

    /// Queues a sequence and returns its slot, which is its own until [`finish`](Self::finish). The
    /// capacity of the sequence must fit the pool.
    pub fn add(&mut self, new: NewSequence) -> Slot {
        assert!(new.capacity <= self.capacity(), "it can fit");
        assert!(!new.whole || new.prompt.len() <= self.limits.rows, "a step holds it");
        self.arrivals += 1;
        let slot = self.free.pop().unwrap_or(self.sequences.unused());
        self.waiting.add(slot, new.tenant, new.user);
        let every = self.limits.state_every;
        let sequence = Sequence::new(new, self.arrivals, self.root, &self.cache, every);
        self.sequences.insert(slot, sequence);
        slot
    }

    /// Number of sequences that are not running, preempted ones included.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of sequences that are running.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether there is nothing to compute, now or when readers have read: no sequence waits or
    /// runs, or only sequences do whose callers choose the next tokens.
    pub fn is_idle(&self) -> bool {
        self.waiting.len() + self.running.len() == self.led
    }

    /// Whether rows of the sequence are part of a step that is planned and not committed.
    pub fn is_flying(&self, slot: Slot) -> bool {
        self.sequences.get(slot).is_some_and(|sequence| sequence.flying > 0)
    }

    /// Running, ready sequences of which one token is to be computed next.
    pub fn decoding(&self) -> impl Iterator<Item = Slot> {
        self.running.iter().copied().filter(|&slot| {
            let sequence = &self.sequences[slot];
            sequence.ready && sequence.pending() == 1
        })
    }

    /// Number of blocks of a group by state.
    pub fn blocks(&self, group: usize) -> BlockCounts {
        self.cache.groups[group].pool.count()
    }

    /// Number of state slots by use.
    pub fn state_counts(&self) -> StateCounts {
        self.cache.states.count()
    }

    /// Sequences preempted, and cached blocks evicted from all groups, since the start.
    pub fn counters(&self) -> (u64, u64) {
        let evictions = self.cache.groups.iter().map(|group| group.pool.evictions());
        (self.preemptions, evictions.sum())
    }

    /// The state of a sequence that waits or runs.
    pub fn sequence(&self, slot: Slot) -> View<'_> {
        let sequence = &self.sequences[slot];
        View {
            tokens: &sequence.chain.tokens,
            tables: &sequence.tables,
            state: sequence.state,
            lookup: sequence.lookup,
            reached: sequence.delivered.min(sequence.prompt),
            prompt: sequence.prompt,
            capacity: sequence.capacity,
        }
    }

    /// Sets whether the sequence is part of plans; a new sequence is. One that is not ready keeps
    /// its state, but others may preempt it.
    pub fn set_ready(&mut self, slot: Slot, ready: bool) {
        let sequence = &mut self.sequences[slot];
        sequence.ready = ready && !sequence.waits;
    }

    /// Sets how many drafted tokens the following plans may verify where the sequence decodes.
    pub fn offer_drafts(&mut self, slot: Slot, drafts: usize) {
        self.sequences[slot].drafts = drafts;
    }

    /// Takes the copies that the plans so far require: in this order, before the last plan is
    /// computed. A block that is read may be empty, taken or written by a later copy already.
    pub fn copies(&mut self) -> impl Iterator<Item = BlockCopy> {
        self.copies.drain(..)
    }

    /// Takes the copies of states that the plans so far require: in this order, before the last
    /// plan is computed.
    pub fn state_copies(&mut self) -> impl Iterator<Item = StateCopy> {
        self.state_copies.drain(..)
    }

    /// The snapshots that the step of `planned` takes of its sequence, by position.
    pub fn saves(&self, planned: &Planned) -> impl Iterator<Item = &StateSave> {
        self.saves.iter().filter(|save| planned.saves(save))
    }

    /// Fills `plan` with the next step: a row for each sequence that decodes, as many of the
    /// offered drafts as fit, then chunks of prompts by priority and arrival, at most `prompt`
    /// tokens together. Steps that are planned and not committed are under way: a sequence of which
    /// they compute the newest token is no part of the plan, and none of theirs is preempted for
    /// it. Steps are computed and committed in the order of their plans.
    pub fn plan(&mut self, prompt: usize, plan: &mut Vec<Planned>) {
        plan.clear();
        let of_a_flight = self.all_decoding().div_ceil(self.limits.flights);
        let mut decoding = self.decoding().count().min(of_a_flight);
        let spare = self.limits.rows - decoding;
        let prompt = prompt.min(spare);
        // Sequences that are admitted or end their prompt now need logits too.
        let logits = self.limits.logits - self.limits.running;
        let drafts = logits.min(spare - prompt);
        let mut budget = StepBudget { prompt, drafts, logits, untouched: true };
        let mut order = std::mem::take(&mut self.order);
        order.clone_from(&self.running);
        for &slot in &order {
            let Sequence { phase, ready, drafts, .. } = self.sequences[slot];
            let pending = self.sequences[slot].pending();
            // It may have been preempted for one before it.
            if !ready || phase != SequencePhase::Running || pending == 0 {
                continue;
            }
            if pending == 1 {
                if decoding == 0 {
                    continue;
                }
                decoding -= 1;
            }
            plan.extend(self.plan_one(slot, &mut budget, Some(drafts)));
        }
        self.order = order;
        while budget.prompt > 0 {
            let Some(slot) = self.admit() else { break };
            plan.extend(self.plan_one(slot, &mut budget, None));
        }
        if !self.cache.states.is_empty() {
            plan.iter().for_each(|planned| self.plan_saves(planned));
        }
    }

    /// Number of running sequences that decode, or do so in steps under way.
    pub fn all_decoding(&self) -> usize {
        let decodes = |slot: &&Slot| {
            let sequence = &self.sequences[**slot];
            sequence.pending() <= 1 && (sequence.ready || sequence.flying > 0)
        };
        self.running.iter().filter(decodes).count()
    }

    /// Discards all steps that are planned and not committed, after one has failed: their rows are
    /// planned again. With states, their sequences begin again from their snapshots, because a step
    /// that fails leaves states undefined.
    pub fn discard_uncommitted(&mut self) {
        self.saves.drain(..).for_each(|save| self.cache.states.release(save.state));
        let is_flying = |slot: &&Slot| self.sequences[**slot].flying > 0;
        let flying: Vec<Slot> = self.running.iter().filter(is_flying).copied().collect();
        for slot in flying {
            match self.sequences[slot].state {
                Some(_) => self.preempt(slot),
                None => self.sequences[slot].flying = 0,
            }
        }
    }

    /// Plans the snapshots after planned rows, as far as there are slots, the last first.
    fn plan_saves(&mut self, planned: &Planned) {
        let Planned { slot, position, tokens, .. } = *planned;
        let fills_a_block = (position + tokens) / self.limits.block > position / self.limits.block;
        for &other in self.waiting.new_ones().iter().filter(|_| fills_a_block) {
            let common = self.sequences[other].common(&self.sequences[slot]);
            if common > position && common <= position + tokens {
                self.sequences[slot].points.add(common);
            }
        }
        let (states, now) = (&mut self.cache.states, self.cache.groups[0].pool.clock());
        let sequence = &mut self.sequences[slot];
        let first = self.saves.len();
        let points: Vec<usize> = sequence.points.between(position, position + tokens).collect();
        for &point in points.iter().rev() {
            if states.touch(&sequence.chain, point, now) {
                continue;
            }
            let Some(state) = states.take() else { break };
            self.saves.push(StateSave { slot, position: point - 1, state });
        }
        self.saves[first..].reverse();
    }

    /// Plans the rows of one sequence. `drafts` is `None` for one that has just been admitted.
    fn plan_one(
        &mut self,
        slot: Slot,
        budget: &mut StepBudget,
        drafts: Option<usize>,
    ) -> Option<Planned> {
        let sequence = &self.sequences[slot];
        let (pending, position) = (sequence.pending(), sequence.planned());
        // Steps under way have none.
        let right = if sequence.flying > 0 { 0 } else { position - sequence.folded };
        // The budget holds no rows of those that decode.
        let drafts = drafts.filter(|_| pending == 1);
        let whole = sequence.whole && drafts.is_none();
        let rows = match drafts {
            Some(_) => 1,
            // It has a step of its own if it is longer than the prompts of a step.
            None if whole && budget.untouched && budget.prompt > 0 => pending,
            None if whole && pending > budget.prompt => {
                budget.prompt = 0;
                return None;
            }
            None => sequence.within(pending.min(budget.prompt), 1 + budget.logits),
        };
        let tokens = self.allocate_rows(slot, rows);
        if tokens == 0 || whole && tokens < rows {
            return None;
        }
        let sequence = &self.sequences[slot];
        let outputs = sequence.outputs(tokens);
        if sequence.wants_logits() {
            budget.logits -= outputs.saturating_sub(1);
        }
        let drafts = match drafts {
            Some(drafts) => {
                let max = drafts.min(budget.drafts).min(budget.logits);
                let drafts = self.grow(slot, 1 + max.min(self.draft_rows(slot))).1 - 1;
                budget.drafts -= drafts;
                budget.logits -= drafts;
                drafts
            }
            None => {
                budget.prompt = budget.prompt.saturating_sub(tokens);
                budget.untouched = false;
                0
            }
        };
        let samples = tokens == pending;
        self.sequences[slot].flying += tokens;
        Some(Planned { slot, position, tokens, drafts, outputs, samples, right })
    }

    /// Rows for drafts that stay below the capacity and take no block that others need for known
    /// tokens.
    fn draft_rows(&self, slot: Slot) -> usize {
        let sequence = &self.sequences[slot];
        let max = sequence.capacity - sequence.chain.tokens.len();
        let mut groups = self.cache.groups.iter();
        if groups.all(|group| group.pool.available() > self.running.len()) {
            return max;
        }
        max.min(sequence.room() - 1)
    }

    /// Allocates blocks for `rows` more rows of a running sequence. Where blocks run out, it
    /// preempts sequences that are not ready, then later ones; but blocks of a group with a window
    /// are soon released, so that fewer rows are enough there. Returns the rows that fit.
    fn allocate_rows(&mut self, slot: Slot, rows: usize) -> usize {
        loop {
            let (trunk, granted) = self.grow(slot, rows);
            let windowed = self.cache.groups[0].window.is_some();
            if granted == rows || (granted > 0 && (windowed || trunk == rows)) {
                return granted;
            }
            let Some(victim) = self.stalled(slot).or(self.last_after(slot)) else { return granted };
            self.preempt(victim);
        }
    }

    fn grow(&mut self, slot: Slot, rows: usize) -> (usize, usize) {
        self.sequences[slot].grow(rows, &mut self.cache)
    }

    /// The last running sequence besides `slot` that is not ready, and not part of a step under
    /// way.
    fn stalled(&self, slot: Slot) -> Option<Slot> {
        let mut last_first = self.running.iter().rev().copied();
        last_first.find(|&other| {
            let Sequence { ready, flying, .. } = self.sequences[other];
            other != slot && !ready && flying == 0
        })
    }

    /// The last running sequence that is not part of a step under way, if it comes after `slot`.
    fn last_after(&self, slot: Slot) -> Option<Slot> {
        let mut after = self.running.iter().rev().copied().take_while(|&other| other != slot);
        after.find(|&other| self.sequences[other].flying == 0)
    }

    fn preempt(&mut self, slot: Slot) {
        self.suspend(slot);
        self.preemptions += 1;
    }

    /// Has a running sequence wait, without blocks.
    pub(crate) fn suspend(&mut self, slot: Slot) {
        self.running.remove(position(&self.running, slot, &self.sequences));
        let sequence = &mut self.sequences[slot];
        sequence.release(&mut self.cache);
        sequence.phase = SequencePhase::Preempted;
        self.waiting.add_preempted(slot, &self.sequences);
    }

    /// Admits the next sequence whose known tokens fit in addition to the running ones, in place of
    /// stalled sequences if need be.
    fn admit(&mut self) -> Option<Slot> {
        loop {
            let (slot, found) = self.next()?;
            let places = self.limits.running - self.restoring;
            if self.running.len() < places && self.fits(slot, &found) {
                self.start(slot, &found);
                return Some(slot);
            }
            // The candidate itself is ready.
            self.preempt(self.stalled(slot)?);
        }
    }

    /// The sequence to admit next, and what the cache holds of it.
    fn next(&mut self) -> Option<(Slot, Match)> {
        let mut candidates = std::mem::take(&mut self.candidates);
        self.waiting.candidates(&self.sequences, &mut candidates);
        let next = candidates.iter().find_map(|&slot| {
            let sequence = &self.sequences[slot];
            let found = sequence.find(&self.cache);
            let waits =
                sequence.phase == SequencePhase::New && self.is_being_computed(sequence, &found);
            (!waits).then_some((slot, found))
        });
        self.candidates = candidates;
        next
    }

    fn start(&mut self, slot: Slot, found: &Match) {
        self.waiting.admit(slot, &mut self.sequences);
        let sequence = &mut self.sequences[slot];
        self.state_copies.extend(sequence.attach(found, &mut self.cache, &mut self.copies));
        sequence.phase = SequencePhase::Running;
        let index = position(&self.running, slot, &self.sequences);
        self.running.insert(index, slot);
    }

    /// Whether a running sequence is about to compute what comes after `found`, or another expects
    /// it from outside: waiting for it is cheaper than computing it twice.
    fn is_being_computed(&self, sequence: &Sequence, found: &Match) -> bool {
        let mut running = self.running.iter().map(|&slot| &self.sequences[slot]);
        let mut waiting = self.waiting.new_ones().iter().map(|&slot| &self.sequences[slot]);
        running.any(|other| other.ready && sequence.waits_for(other, found))
            || waiting.any(|other| sequence.waits_for_restore(other, found, &self.cache))
    }

    /// Whether each group has blocks for all its tokens, and one more for each running sequence;
    /// with states, whether snapshots of steps under way have left it a slot.
    fn fits(&self, slot: Slot, found: &Match) -> bool {
        let states = &self.cache.states;
        if !(states.is_empty() || states.has_room()) {
            return false;
        }
        let tokens = self.sequences[slot].chain.tokens.len();
        let mut groups = self.cache.groups.iter().zip(&found.groups);
        groups.all(|(group, part)| {
            let blocks = group.needs(part, tokens, self.limits.rows);
            blocks + self.running.len() <= group.pool.available()
        })
    }

    /// Records that `planned` was computed and, if it samples, that `sampled` were appended, all
    /// but the last of which were drafted. Registers full blocks, which other sequences find from
    /// now on. Does nothing if the sequence was finished since the plan.
    pub fn commit(&mut self, planned: &Planned, sampled: &[u32]) {
        let Some(sequence) = self.sequences.get_mut(planned.slot) else { return };
        if planned.samples {
            assert!(sampled.len() <= planned.drafts + 1, "more tokens than rows");
        }
        let sampled = if planned.samples { sampled } else { &[] };
        assert_eq!(planned.position, sequence.computed, "steps are committed in order");
        sequence.commit(planned.tokens, sampled, &mut self.cache);
        let now = self.cache.trunk().clock();
        for save in self.saves.extract_if(.., |save| planned.saves(save)) {
            let point = save.position + 1;
            let depth = sequence.points.depth(point, self.cache.block);
            self.cache.states.keep(save.state, &sequence.chain, point, depth, now);
        }
        let (tenant, user) = (sequence.tenant, sequence.user);
        self.waiting.served(tenant, user, planned.tokens + sampled.len());
    }

    /// Removes a sequence in any state and frees its slot; nothing if the slot is empty. What was
    /// computed stays in the cache.
    pub fn finish(&mut self, slot: Slot) {
        self.end_restore(slot);
        let Some(sequence) = self.sequences.get_mut(slot) else { return };
        for save in self.saves.extract_if(.., |save| save.slot == slot) {
            self.cache.states.release(save.state);
        }
        sequence.release(&mut self.cache);
        self.led -= usize::from(sequence.waits);
        self.waiting.ended(sequence.tenant, sequence.user);
        match sequence.phase {
            SequencePhase::Running => {
                self.running.remove(position(&self.running, slot, &self.sequences));
            }
            _ => {
                self.waiting.remove(slot, &self.sequences);
            }
        }
        self.sequences.remove(slot);
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests;
