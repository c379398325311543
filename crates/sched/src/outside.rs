//! What is read from the cache to be stored outside, and comes into it from there.

use crate::restore::RestorePlace;
use crate::restore_plan::{RestorePlan, StoredParts};
use crate::scheduler::Scheduler;
use crate::sequence::{Sequence, SequencePhase};
use crate::slot::Slot;
use base::Name;
use std::ops::Range;

impl Scheduler {
    /// Full blocks of a sequence that it has computed, counted from the first. While it runs,
    /// others can find all of them.
    pub fn registered(&self, slot: Slot) -> usize {
        self.sequences.get(slot).map_or(0, Sequence::registered)
    }

    /// Whether a sequence has not run yet and may use what was computed for others.
    pub fn may_restore(&self, slot: Slot) -> bool {
        self.sequences.get(slot).is_some_and(Sequence::may_restore)
    }

    /// Whether a sequence waits although it has run.
    pub fn is_preempted(&self, slot: Slot) -> bool {
        let sequence = self.sequences.get(slot);
        sequence.is_some_and(|sequence| sequence.phase == SequencePhase::Preempted)
    }

    /// The chain of a sequence: name of the block before block `index`, and name and tokens of the
    /// full block.
    pub fn full_block(&self, slot: Slot, index: usize) -> Option<(Name, Name, &[u32])> {
        let chain = &self.sequences.get(slot)?.chain;
        Some((chain.parent(index), chain.name(index)?, chain.full(index)))
    }

    /// Name of the last full block of a sequence before `position`, and the tokens since.
    pub fn before(&self, slot: Slot, position: usize) -> Option<(Name, &[u32])> {
        let chain = &self.sequences.get(slot)?.chain;
        (position <= chain.tokens.len()).then(|| chain.before(position))
    }

    /// Index of the first block of a group that the row at `position` looks at.
    pub fn first_seen(&self, group: usize, position: usize) -> usize {
        self.cache.groups[group].first_seen(position)
    }

    /// Whether the row at `position` looks at other rows of its block in a group.
    pub fn sees_own_block(&self, group: usize, position: usize) -> bool {
        self.cache.groups[group].sees_own_block(position)
    }

    /// Positions in `range` from which later sequences are likely to continue. With states, the
    /// positions of snapshots, and of the state that a running sequence leaves.
    pub fn resume_points(&self, slot: Slot, range: Range<usize>) -> Vec<usize> {
        let Some(sequence) = self.sequences.get(slot) else { return Vec::new() };
        let most = range.end.saturating_sub(1).min(sequence.chain.tokens.len());
        let mut points = match self.cache.states.is_empty() {
            true => sequence.points.between(range.start.saturating_sub(1), most).collect(),
            false => self.cache.states.of_chain(&sequence.chain, most),
        };
        points.extend(sequence.state.map(|_| sequence.folded));
        points.retain(|point| range.contains(point));
        points.sort_unstable();
        points.dedup();
        points
    }

    /// The block of a group with this name and content, in any state.
    pub fn find(&self, group: usize, name: Name, parent: Name, tokens: &[u32]) -> Option<u32> {
        self.cache.groups[group].pool.find(name, parent, tokens)
    }

    /// A block of a group that begins with `tokens` after the block of this name.
    pub fn find_tail(&self, group: usize, parent: Name, tokens: &[u32]) -> Option<u32> {
        self.cache.groups[group].pool.tail(parent, tokens)
    }

    /// The snapshot after `tokens` that follow the block of this name.
    pub fn find_state(&self, parent: Name, tokens: &[u32]) -> Option<u32> {
        self.cache.states.find(parent, tokens)
    }

    /// What would have to come from outside for a waiting sequence to continue further than with
    /// the cache alone. `None` if nothing would help, and for sequences that ran or do not use the
    /// cache.
    pub fn plan_restore(&self, slot: Slot, stored: &dyn StoredParts) -> Option<RestorePlan> {
        self.sequences.get(slot)?.plan_restore(&self.cache, stored)
    }

    /// Has a waiting sequence expect what the plan, which was just made, lacks; returns the places
    /// that are to be written, in this order. The sequence is not admitted before
    /// [`end_restore`](Self::end_restore). `None` if they are not available, or copies are not made
    /// or snapshots not committed yet.
    pub fn begin_restore(&mut self, slot: Slot, plan: &RestorePlan) -> Option<Vec<RestorePlace>> {
        if !(self.copies.is_empty() && self.state_copies.is_empty() && self.saves.is_empty()) {
            return None;
        }
        // It takes the state slot that it needs to run.
        if plan.state && self.running.len() + self.restoring >= self.limits.running {
            return None;
        }
        let sequence = self.sequences.get_mut(slot).filter(|sequence| sequence.may_restore())?;
        let places = sequence.begin_restore(&mut self.cache, plan, self.running.len())?;
        self.restoring += usize::from(plan.state);
        Some(places)
    }

    /// Takes the next of the places that a sequence expects, which was written. Does nothing if the
    /// sequence expects none, or was finished.
    pub fn restored(&mut self, slot: Slot) {
        if let Some(sequence) = self.sequences.get_mut(slot) {
            sequence.restored(&mut self.cache);
        }
    }

    /// Has a sequence expect nothing more: it computes what did not come.
    pub fn end_restore(&mut self, slot: Slot) {
        let Some(sequence) = self.sequences.get_mut(slot) else { return };
        if let Some(restore) = sequence.restore.take() {
            self.restoring -= usize::from(restore.has_state());
            restore.end(&sequence.chain, &mut self.cache);
        }
    }
}
