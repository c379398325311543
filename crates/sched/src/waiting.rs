//! Admission order of waiting sequences.
//!
//! Preempted sequences come before new ones. New sequences are ordered by priority (lower first),
//! then by the tokens their tenant was served (virtual token counters: Sheng et al., "Fairness in
//! Serving Large Language Models", OSDI 2024), then by the tokens their user, one of the tenant's,
//! was served, then by arrival. A sequence that was overtaken [`MAX_OVERTAKEN`] times precedes
//! other new sequences, so that none starves.

use crate::sequence::{Sequence, SequencePhase};
use crate::slot::{Slot, SlotTable};
use std::collections::HashMap;

/// Later arrivals that may be admitted before a sequence.
pub(crate) const MAX_OVERTAKEN: u32 = 32;
/// Tenants, or users, above which those without sequences are forgotten.
const MAX_SHARES: usize = 4096;
/// Candidates examined for one admission; the others wait for the next step.
const MAX_CANDIDATES: usize = 64;

/// What was computed for a tenant, or for a user.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Tokens computed on its behalf.
    served: u64,
    /// Number of its sequences that wait or run.
    sequences: usize,
}

/// The shares of the members of groups, by group and member.
#[derive(Clone, Debug, Default)]
struct Shares(HashMap<(u64, u64), Share>);

impl Shares {
    /// The fewest tokens that a member of `group` with sequences was served.
    fn least(&self, group: u64) -> Option<u64> {
        let busy = self.0.iter().filter(|((of, _), share)| *of == group && share.sequences > 0);
        busy.map(|(_, share)| share.served).min()
    }

    /// Counts a sequence that has just arrived. A member without other sequences gets no credit for
    /// the time it was idle: it counts as served like the others, or `alone` if it is the only one.
    fn begin(&mut self, group: u64, member: u64, alone: u64) {
        let least = self.least(group);
        let share = self.0.entry((group, member)).or_default();
        if share.sequences == 0 {
            share.served = share.served.max(least.unwrap_or(alone));
        }
        share.sequences += 1;
    }

    /// Counts tokens computed on behalf of a member.
    fn add(&mut self, group: u64, member: u64, tokens: usize) {
        if let Some(share) = self.0.get_mut(&(group, member)) {
            share.served += tokens as u64;
        }
    }

    /// Removes an ended sequence.
    fn end(&mut self, group: u64, member: u64) {
        if let Some(share) = self.0.get_mut(&(group, member)) {
            share.sequences -= 1;
        }
        let least = self.least(group);
        // An idle member is remembered only while it was served more than the others: then its
        // count must survive its absence.
        let few = self.0.len() <= MAX_SHARES;
        self.0.retain(|(of, _), share| {
            let ahead = least.is_some_and(|least| share.served > least);
            *of != group || share.sequences > 0 || (few && ahead)
        });
    }

    fn served(&self, group: u64, member: u64) -> u64 {
        self.0.get(&(group, member)).map_or(0, |share| share.served)
    }
}

/// The group of all tenants.
const TENANTS: u64 = 0;

/// Slots of the sequences that are not running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// By rank.
    preempted: Vec<Slot>,
    /// By arrival.
    new: Vec<Slot>,
    tenants: Shares,
    /// The users of each tenant, which is their group.
    users: Shares,
}

/// Index of `slot` in the list of its phase, or the index at which it belongs there.
pub(crate) fn position(list: &[Slot], slot: Slot, sequences: &SlotTable<Sequence>) -> usize {
    let key = sequences[slot].order();
    list.partition_point(|&other| sequences[other].order() < key)
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.preempted.len() + self.new.len()
    }

    /// The sequences that never ran.
    pub fn new_ones(&self) -> &[Slot] {
        &self.new
    }

    /// Appends a sequence that has just arrived, of a user of a tenant.
    pub fn add(&mut self, slot: Slot, tenant: u64, user: u64) {
        self.tenants.begin(TENANTS, tenant, 0);
        // So the only user of a tenant always counts as served like the tenant.
        self.users.begin(tenant, user, self.tenants.served(TENANTS, tenant));
        self.new.push(slot);
    }

    /// Takes back a sequence that was running.
    pub fn add_preempted(&mut self, slot: Slot, sequences: &SlotTable<Sequence>) {
        let index = position(&self.preempted, slot, sequences);
        self.preempted.insert(index, slot);
    }

    /// Counts tokens computed on behalf of a user of a tenant.
    pub fn served(&mut self, tenant: u64, user: u64, tokens: usize) {
        self.tenants.add(TENANTS, tenant, tokens);
        self.users.add(tenant, user, tokens);
    }

    /// Removes an ended sequence from the counts of its tenant and user.
    pub fn ended(&mut self, tenant: u64, user: u64) {
        self.tenants.end(TENANTS, tenant);
        self.users.end(tenant, user);
    }

    /// Fills `out` with the ready sequences to examine for the next admission, best first. If one
    /// does not fit, those after it wait too.
    pub fn candidates(&self, sequences: &SlotTable<Sequence>, out: &mut Vec<Slot>) {
        out.clear();
        let is_ready = |slot: &&Slot| {
            let sequence = &sequences[**slot];
            sequence.ready && sequence.restore.is_none()
        };
        if let Some(&slot) = self.preempted.iter().find(is_ready) {
            return out.push(slot);
        }
        out.extend(self.new.iter().filter(is_ready));
        let key = |slot: &Slot| {
            let sequence = &sequences[*slot];
            let Sequence { tenant, user, priority, arrival, .. } = *sequence;
            let served = (self.tenants.served(TENANTS, tenant), self.users.served(tenant, user));
            let patient = sequence.overtaken < MAX_OVERTAKEN;
            let (priority, served) = if patient { (priority, served) } else { (0, (0, 0)) };
            (patient, priority, served, arrival)
        };
        if out.len() > MAX_CANDIDATES {
            out.select_nth_unstable_by_key(MAX_CANDIDATES - 1, key);
            out.truncate(MAX_CANDIDATES);
        }
        out.sort_unstable_by_key(key);
    }

    /// Removes a sequence that is admitted. A new sequence overtakes the sequences that arrived
    /// earlier.
    pub fn admit(&mut self, slot: Slot, sequences: &mut SlotTable<Sequence>) {
        let index = self.remove(slot, sequences);
        if sequences[slot].phase == SequencePhase::New {
            self.new[..index].iter().for_each(|&earlier| sequences[earlier].overtaken += 1);
        }
    }

    /// Removes a sequence and returns the index it had in its list.
    pub fn remove(&mut self, slot: Slot, sequences: &SlotTable<Sequence>) -> usize {
        let list = match sequences[slot].phase {
            SequencePhase::New => &mut self.new,
            _ => &mut self.preempted,
        };
        let index = position(list, slot, sequences);
        list.remove(index);
        index
    }
}
