//! Admission, planning of steps and bookkeeping of their results.

use crate::name::Name;
use crate::pool::{BlockCounts, BlockPool};
use crate::sequence::{BlockCopy, BlockGeometry, Match, NewSequence, Sequence, SequencePhase};
use crate::slot::{Slot, SlotTable};
use crate::waiting::{Waiting, position};

/// Limits of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Sequences that run at once.
    pub running: usize,
    /// Rows of a step.
    pub rows: usize,
    /// Rows of a step that have logits; at least `running`.
    pub logits: usize,
    /// Positions of a KV block.
    pub block: usize,
    /// Blocks of the KV cache.
    pub blocks: usize,
    /// Maximum number of positions that a row attends to, if every layer has a window: blocks
    /// before the window are released.
    pub window: Option<usize>,
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
}

/// The state of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Prompt and generated tokens.
    pub tokens: &'a [u32],
    /// Block table, empty unless the sequence runs. Blocks before the window of all rows are
    /// `u32::MAX`.
    pub table: &'a [u32],
    /// Prompt tokens found in the cache when the sequence was first admitted; `None` before.
    pub cached: Option<usize>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Maximum number of tokens, prompt included.
    pub capacity: usize,
}

/// The rows that a step may still hold, in addition to one row with logits for each decoding
/// sequence.
#[derive(Clone, Copy, Debug)]
struct StepBudget {
    prompt: usize,
    drafts: usize,
    logits: usize,
}

/// Continuous batching over a pool of KV blocks.
#[derive(Clone, Debug)]
pub struct Scheduler {
    limits: SchedulerLimits,
    geometry: BlockGeometry,
    pool: BlockPool,
    sequences: SlotTable<Sequence>,
    /// Empty slots below the highest slot used so far.
    free: Vec<Slot>,
    waiting: Waiting,
    /// By priority, then arrival.
    running: Vec<Slot>,
    arrivals: u64,
    preemptions: u64,
    /// Blocks to be copied, in this order.
    copies: Vec<BlockCopy>,
    /// Workspace of `plan`.
    order: Vec<Slot>,
    candidates: Vec<Slot>,
}

impl Scheduler {
    /// A scheduler over empty blocks. `root` names everything but tokens that decides the numbers.
    pub fn new(limits: SchedulerLimits, root: Name) -> Self {
        let SchedulerLimits { running, rows, logits, block, blocks, window } = limits;
        assert!(running > 0 && block > 0 && blocks > 0, "{limits:?}");
        assert!(running <= logits && logits <= rows, "every sequence can decode: {limits:?}");
        assert!(window != Some(0), "a row sees itself");
        Self {
            limits,
            geometry: BlockGeometry { block, window, root },
            pool: BlockPool::new(blocks),
            sequences: SlotTable::default(),
            free: Vec::new(),
            waiting: Waiting::default(),
            running: Vec::with_capacity(running),
            arrivals: 0,
            preemptions: 0,
            copies: Vec::with_capacity(running),
            order: Vec::with_capacity(running),
            candidates: Vec::new(),
        }
    }

    /// Maximum number of tokens of a sequence.
    pub fn capacity(&self) -> usize {
        self.limits.blocks * self.limits.block
    }

    /// Queues a sequence and returns its slot, which is its own until [`finish`](Self::finish). The
    /// capacity of the sequence must fit the pool. Not to be called between a plan and its commits.
    pub fn add(&mut self, new: NewSequence) -> Slot {
        assert!(new.capacity <= self.capacity(), "it can fit");
        self.arrivals += 1;
        let slot = self.free.pop().unwrap_or(self.sequences.unused());
        self.waiting.add(slot, new.tenant, new.user);
        self.sequences.insert(slot, Sequence::new(new, self.arrivals, &self.geometry));
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

    /// Whether no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.len() == 0 && self.running.is_empty()
    }

    /// Running, ready sequences of which one token is to be computed next.
    pub fn decoding(&self) -> impl Iterator<Item = Slot> {
        self.running.iter().copied().filter(|&slot| {
            let sequence = &self.sequences[slot];
            sequence.ready && sequence.pending() == 1
        })
    }

    /// Number of blocks by state.
    pub fn blocks(&self) -> BlockCounts {
        self.pool.count()
    }

    /// Sequences preempted, and cached blocks evicted, since the start.
    pub fn counters(&self) -> (u64, u64) {
        (self.preemptions, self.pool.evictions())
    }

    /// The state of a sequence that waits or runs.
    pub fn sequence(&self, slot: Slot) -> View<'_> {
        let Sequence { tokens, table, cached, prompt, capacity, .. } = &self.sequences[slot];
        View { tokens, table, cached: *cached, prompt: *prompt, capacity: *capacity }
    }

    /// Sets whether the sequence is part of plans; a new sequence is. One that is not ready keeps
    /// its state, but others may preempt it.
    pub fn set_ready(&mut self, slot: Slot, ready: bool) {
        self.sequences[slot].ready = ready;
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

    /// Fills `plan` with the next step: a row for each sequence that decodes, as many of the
    /// offered drafts as fit, then chunks of prompts by priority and arrival, at most `prompt`
    /// tokens together.
    pub fn plan(&mut self, prompt: usize, plan: &mut Vec<Planned>) {
        plan.clear();
        let spare = self.limits.rows - self.decoding().count();
        let prompt = prompt.min(spare);
        // Sequences that are admitted or end their prompt now need logits too.
        let logits = self.limits.logits - self.limits.running;
        let mut budget = StepBudget { prompt, drafts: logits.min(spare - prompt), logits };
        let mut order = std::mem::take(&mut self.order);
        order.clone_from(&self.running);
        for &slot in &order {
            let Sequence { phase, ready, drafts, .. } = self.sequences[slot];
            // It may have been preempted for one before it.
            if ready && phase == SequencePhase::Running {
                plan.extend(self.plan_one(slot, &mut budget, Some(drafts)));
            }
        }
        self.order = order;
        while budget.prompt > 0 {
            let Some(slot) = self.admit() else { break };
            plan.extend(self.plan_one(slot, &mut budget, None));
        }
    }

    /// Plans the rows of one sequence. `drafts` is `None` for one that has just been admitted.
    fn plan_one(
        &mut self,
        slot: Slot,
        budget: &mut StepBudget,
        drafts: Option<usize>,
    ) -> Option<Planned> {
        let sequence = &self.sequences[slot];
        let (pending, position) = (sequence.pending(), sequence.computed);
        // The budget holds no rows of those that decode.
        let drafts = drafts.filter(|_| pending == 1);
        let rows = match drafts {
            Some(_) => 1,
            None => sequence.within(pending.min(budget.prompt), 1 + budget.logits),
        };
        let tokens = self.allocate_rows(slot, rows);
        if tokens == 0 {
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
                let drafts = self.grow(slot, 1 + max.min(self.draft_rows(slot))) - 1;
                budget.drafts -= drafts;
                budget.logits -= drafts;
                drafts
            }
            None => {
                budget.prompt -= tokens;
                0
            }
        };
        Some(Planned { slot, position, tokens, drafts, outputs, samples: tokens == pending })
    }

    /// Rows for drafts that stay below the capacity and take no block that others need for known
    /// tokens.
    fn draft_rows(&self, slot: Slot) -> usize {
        let Sequence { capacity, tokens, table, computed, .. } = &self.sequences[slot];
        let max = capacity - tokens.len();
        if self.pool.available() > self.running.len() {
            return max;
        }
        max.min(table.len() * self.geometry.block - computed - 1)
    }

    /// Allocates blocks for `rows` more rows of a running sequence. Where blocks run out, it
    /// preempts sequences that are not ready, then later ones. Returns the rows that fit.
    fn allocate_rows(&mut self, slot: Slot, rows: usize) -> usize {
        loop {
            let granted = self.grow(slot, rows);
            if granted == rows {
                return granted;
            }
            let behind = self.running.last().copied().filter(|&last| last != slot);
            let Some(victim) = self.stalled(slot).or(behind) else { return granted };
            self.preempt(victim);
        }
    }

    /// Takes blocks for up to `rows` more rows and returns the rows that fit.
    fn grow(&mut self, slot: Slot, rows: usize) -> usize {
        let sequence = &mut self.sequences[slot];
        let needed = (sequence.computed + rows).div_ceil(self.geometry.block);
        while sequence.table.len() < needed {
            let Some(block) = self.pool.take() else { break };
            sequence.table.push(block);
        }
        (sequence.table.len() * self.geometry.block - sequence.computed).min(rows)
    }

    /// The last running sequence besides `slot` that is not ready.
    fn stalled(&self, slot: Slot) -> Option<Slot> {
        let mut behind = self.running.iter().rev().copied();
        behind.find(|&other| other != slot && !self.sequences[other].ready)
    }

    fn preempt(&mut self, slot: Slot) {
        self.running.remove(position(&self.running, slot, &self.sequences));
        let sequence = &mut self.sequences[slot];
        sequence.release_blocks(&mut self.pool, &self.geometry);
        sequence.phase = SequencePhase::Preempted;
        self.preemptions += 1;
        self.waiting.add_preempted(slot, &self.sequences);
    }

    /// Admits the next sequence whose known tokens fit beside the running ones, in place of stalled
    /// sequences if need be.
    fn admit(&mut self) -> Option<Slot> {
        loop {
            let (slot, found) = self.next()?;
            if self.running.len() < self.limits.running && self.fits(slot, &found) {
                self.start(slot, found);
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
            let found = sequence.find(&self.pool, &self.geometry);
            let waits =
                sequence.phase == SequencePhase::New && self.is_being_computed(sequence, &found);
            (!waits).then_some((slot, found))
        });
        self.candidates = candidates;
        next
    }

    fn start(&mut self, slot: Slot, found: Match) {
        self.waiting.admit(slot, &mut self.sequences);
        let sequence = &mut self.sequences[slot];
        self.copies.extend(sequence.attach_prefix(found, &mut self.pool, &self.geometry));
        sequence.phase = SequencePhase::Running;
        let index = position(&self.running, slot, &self.sequences);
        self.running.insert(index, slot);
    }

    /// Whether a running sequence is about to compute the block after `found`: waiting for it is
    /// cheaper than computing it twice.
    fn is_being_computed(&self, sequence: &Sequence, found: &Match) -> bool {
        let Some((index, name)) = sequence.missing(found, &self.geometry) else { return false };
        let mut running = self.running.iter().map(|&slot| &self.sequences[slot]);
        running.any(|other| other.ready && other.will_compute(index, name))
    }

    /// Whether there are blocks for all its tokens, and one more for each running sequence.
    fn fits(&self, slot: Slot, found: &Match) -> bool {
        let reused = &found.table[found.first..];
        let idle = reused.iter().filter(|&&block| self.pool.is_idle(block)).count();
        let blocks = self.sequences[slot].tokens.len().div_ceil(self.geometry.block);
        blocks - found.table.len() + self.running.len() + idle <= self.pool.available()
    }

    /// Records that `planned` was computed and, if it samples, that `sampled` were appended, all
    /// but the last of which were drafted. Registers full blocks, which other sequences find from
    /// now on. Does nothing if the sequence was finished since the plan.
    pub fn commit(&mut self, planned: &Planned, sampled: &[u32]) {
        let Some(sequence) = self.sequences.get_mut(planned.slot) else { return };
        sequence.compute(planned.tokens);
        if planned.samples {
            assert!(sampled.len() <= planned.drafts + 1, "more tokens than rows");
            sequence.computed += sampled.len().saturating_sub(1);
            sequence.tokens.extend_from_slice(sampled);
        }
        assert!(sequence.tokens.len() <= sequence.capacity, "grew beyond its capacity");
        sequence.register_full_blocks(&mut self.pool, &self.geometry);
        let (tenant, user) = (sequence.tenant, sequence.user);
        self.waiting.served(tenant, user, planned.tokens + sampled.len());
    }

    /// Removes a sequence in any state and frees its slot; nothing if the slot is empty. What was
    /// computed stays in the cache.
    pub fn finish(&mut self, slot: Slot) {
        let Some(sequence) = self.sequences.get_mut(slot) else { return };
        sequence.release_blocks(&mut self.pool, &self.geometry);
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
