//! Who is admitted next.
//!
//! Preempted sequences come before all others. Then the lowest priority number; among equals the
//! tenant that was served least (virtual token counters: Sheng et al., "Fairness in Serving Large
//! Language Models", OSDI 2024), then the order of arrival. Whoever was overtaken too often goes
//! before all of these, so that nobody starves.

use crate::sequence::{Sequence, SequenceId};
use std::collections::HashMap;

/// Later arrivals that may be admitted before a sequence.
pub(crate) const MAX_OVERTAKEN: u32 = 32;
/// Tenants from which on only those are remembered that ask for something.
const MAX_TENANTS: usize = 4096;
/// Candidates looked at for one admission; those behind wait for the next step.
const MAX_CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    /// Tokens computed on its behalf.
    served: u64,
    /// Its sequences that wait or run.
    sequences: usize,
}

/// Sequences that are not running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    preempted: Vec<Sequence>,
    new: Vec<Sequence>,
    tenants: HashMap<u64, Tenant>,
}

/// A sequence among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueIndex {
    Preempted(usize),
    New(usize),
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.preempted.len() + self.new.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.preempted.iter().chain(&self.new)
    }

    /// Takes a new sequence. A tenant that comes anew has no credit from times when it asked for
    /// nothing.
    pub fn add(&mut self, sequence: Sequence) {
        let busy = self.tenants.values().filter(|tenant| tenant.sequences > 0);
        let least = busy.map(|tenant| tenant.served).min();
        let tenant = self.tenants.entry(sequence.tenant).or_default();
        if tenant.sequences == 0 {
            tenant.served = tenant.served.max(least.unwrap_or(0));
        }
        tenant.sequences += 1;
        self.new.push(sequence);
    }

    /// Takes back a sequence that was running.
    pub fn add_preempted(&mut self, sequence: Sequence) {
        let index = self.preempted.partition_point(|other| other.rank() < sequence.rank());
        self.preempted.insert(index, sequence);
    }

    /// Counts tokens computed on behalf of a tenant.
    pub fn served(&mut self, tenant: u64, tokens: usize) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.served += tokens as u64;
        }
    }

    /// A sequence of this tenant has ended.
    pub fn ended(&mut self, tenant: u64) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.sequences -= 1;
        }
        let least = self.tenants.values().filter(|t| t.sequences > 0).map(|t| t.served).min();
        // Those who are behind the others get no credit for it when they come again. Of the rest, so
        // many are remembered as do no harm.
        let few = self.tenants.len() <= MAX_TENANTS;
        self.tenants.retain(|_, tenant| {
            let ahead = least.is_some_and(|least| tenant.served > least);
            tenant.sequences > 0 || (few && ahead)
        });
    }

    /// The sequences to be looked at for the next admission, best first. If one of them does not
    /// fit, those behind it wait too. Those whose readers are slow wait alone.
    pub fn candidates(&self, ready: &impl Fn(SequenceId) -> bool, out: &mut Vec<QueueIndex>) {
        out.clear();
        if let Some(index) = self.preempted.iter().position(|sequence| ready(sequence.id)) {
            return out.push(QueueIndex::Preempted(index));
        }
        let readers = self.new.iter().enumerate().filter(|(_, sequence)| ready(sequence.id));
        out.extend(readers.map(|(index, _)| QueueIndex::New(index)));
        let key = |index: &QueueIndex| {
            let sequence = self.get(*index);
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

    pub fn get(&self, index: QueueIndex) -> &Sequence {
        match index {
            QueueIndex::Preempted(index) => &self.preempted[index],
            QueueIndex::New(index) => &self.new[index],
        }
    }

    /// Lets a sequence go on; those that came earlier are overtaken.
    pub fn admit(&mut self, index: QueueIndex) -> Sequence {
        let index = match index {
            QueueIndex::Preempted(index) => return self.preempted.remove(index),
            QueueIndex::New(index) => index,
        };
        // Arrivals ascend: all before it came earlier.
        self.new[..index].iter_mut().for_each(|earlier| earlier.overtaken += 1);
        self.new.remove(index)
    }

    pub fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let list = [&mut self.preempted, &mut self.new];
        list.into_iter().find_map(|list| {
            let at = list.iter().position(|sequence| sequence.id == id)?;
            Some(list.remove(at))
        })
    }
}
