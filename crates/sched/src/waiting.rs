//! Admission order of waiting sequences.
//!
//! Preempted sequences come before new ones. New sequences are ordered by priority (lower first),
//! then by the tokens their tenant was served (virtual token counters: Sheng et al., "Fairness in
//! Serving Large Language Models", OSDI 2024), then by arrival. A sequence that was overtaken
//! [`MAX_OVERTAKEN`] times precedes other new sequences, so that none starves.

use crate::sequence::{Sequence, SequencePhase};
use crate::slot::{Slot, SlotTable};
use std::collections::HashMap;

/// Later arrivals that may be admitted before a sequence.
pub(crate) const MAX_OVERTAKEN: u32 = 32;
/// Tenants above which those without sequences are forgotten.
const MAX_TENANTS: usize = 4096;
/// Candidates examined for one admission; the others wait for the next step.
const MAX_CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    /// Tokens computed on its behalf.
    served: u64,
    /// Number of the tenant's sequences that wait or run.
    sequences: usize,
}

/// Slots of the sequences that are not running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// By rank.
    preempted: Vec<Slot>,
    /// By arrival.
    new: Vec<Slot>,
    tenants: HashMap<u64, Tenant>,
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

    /// Appends a sequence that has just arrived. A tenant without other sequences gets no credit
    /// for the time it was idle.
    pub fn add(&mut self, slot: Slot, tenant: u64) {
        let busy = self.tenants.values().filter(|tenant| tenant.sequences > 0);
        let least = busy.map(|tenant| tenant.served).min();
        let tenant = self.tenants.entry(tenant).or_default();
        if tenant.sequences == 0 {
            tenant.served = tenant.served.max(least.unwrap_or(0));
        }
        tenant.sequences += 1;
        self.new.push(slot);
    }

    /// Takes back a sequence that was running.
    pub fn add_preempted(&mut self, slot: Slot, sequences: &SlotTable<Sequence>) {
        let index = position(&self.preempted, slot, sequences);
        self.preempted.insert(index, slot);
    }

    /// Counts tokens computed on behalf of a tenant.
    pub fn served(&mut self, tenant: u64, tokens: usize) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.served += tokens as u64;
        }
    }

    /// Removes an ended sequence from the count of its tenant.
    pub fn ended(&mut self, tenant: u64) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.sequences -= 1;
        }
        let least = self.tenants.values().filter(|t| t.sequences > 0).map(|t| t.served).min();
        // An idle tenant is remembered only while it was served more than the others: then its
        // count must survive its absence.
        let few = self.tenants.len() <= MAX_TENANTS;
        self.tenants.retain(|_, tenant| {
            let ahead = least.is_some_and(|least| tenant.served > least);
            tenant.sequences > 0 || (few && ahead)
        });
    }

    /// Fills `out` with the ready sequences to examine for the next admission, best first. If one
    /// does not fit, those after it wait too.
    pub fn candidates(&self, sequences: &SlotTable<Sequence>, out: &mut Vec<Slot>) {
        out.clear();
        let is_ready = |slot: &&Slot| sequences[**slot].ready;
        if let Some(&slot) = self.preempted.iter().find(is_ready) {
            return out.push(slot);
        }
        out.extend(self.new.iter().filter(is_ready));
        let key = |slot: &Slot| {
            let sequence = &sequences[*slot];
            let served = self.tenants.get(&sequence.tenant).map_or(0, |tenant| tenant.served);
            let patient = sequence.overtaken < MAX_OVERTAKEN;
            let (priority, served) = if patient { (sequence.priority, served) } else { (0, 0) };
            (patient, priority, served, sequence.arrival)
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
