//! Rules of eviction: which of the experts in memory is worth least.

use backend::Heat;
use engine::routes::RouteTrace;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// Rows of a layer of a step that have chosen an expert.
pub(super) struct ExpertUse {
    /// Number of the entry in the trace.
    pub at: usize,
    /// Number of the expert among those of all layers.
    pub expert: usize,
    /// Rows that count as uses.
    pub rows: usize,
    /// The step, counted where rows count.
    pub step: u64,
}

/// What experts are worth. The least goes first.
pub(super) trait Values {
    /// Notes uses.
    fn used(&mut self, used: &ExpertUse);
    /// The value of an expert.
    fn value(&self, expert: usize) -> f64;
}

/// A rule of eviction.
pub(super) struct Policy {
    pub name: &'static str,
    /// The values of the experts of a trace, where uses count half after a number of steps.
    pub values: fn(&RouteTrace, f64) -> Box<dyn Values>,
}

/// All rules.
pub(super) static POLICIES: [Policy; 3] = [
    Policy { name: "belady", values: |trace, _| Box::new(NextUse::of(trace)) },
    Policy { name: "lru", values: |trace, _| Box::new(LastUse(vec![0; experts(trace)])) },
    Policy {
        name: "heat",
        values: |trace, half_life| {
            Box::new(Uses { heat: vec![Heat::default(); experts(trace)], half_life })
        },
    },
];

/// Experts of all layers.
fn experts(trace: &RouteTrace) -> usize {
    trace.header.experts as usize * trace.header.layers.len()
}

/// The expert whose next use is furthest away goes first: the best rule, and it needs the future.
struct NextUse {
    /// The next use of the expert of each entry.
    next: Vec<usize>,
    values: Vec<usize>,
}

impl NextUse {
    fn of(trace: &RouteTrace) -> Self {
        let mut next = vec![usize::MAX; trace.entries.len()];
        let mut seen = vec![usize::MAX; experts(trace)];
        for group in trace.groups.iter().rev() {
            for at in group.entries.clone().rev() {
                let expert = trace.entries[at].expert as usize;
                let number = group.layer * trace.header.experts as usize + expert;
                next[at] = std::mem::replace(&mut seen[number], at);
            }
        }
        Self { next, values: vec![usize::MAX; seen.len()] }
    }
}

impl Values for NextUse {
    fn used(&mut self, used: &ExpertUse) {
        self.values[used.expert] = self.next[used.at];
    }

    fn value(&self, expert: usize) -> f64 {
        -(self.values[expert] as f64)
    }
}

/// The expert that was not used for longest goes first.
struct LastUse(Vec<usize>);

impl Values for LastUse {
    fn used(&mut self, used: &ExpertUse) {
        self.0[used.expert] = used.at;
    }

    fn value(&self, expert: usize) -> f64 {
        self.0[expert] as f64
    }
}

/// The rule of the engine: the coldest goes first.
struct Uses {
    heat: Vec<Heat>,
    half_life: f64,
}

impl Values for Uses {
    fn used(&mut self, used: &ExpertUse) {
        self.heat[used.expert].add_fading(used.rows, used.step, self.half_life);
    }

    fn value(&self, expert: usize) -> f64 {
        self.heat[expert].value()
    }
}

/// A value in an order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank(f64);

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Slots of one size, and the experts in them.
pub(super) struct SlotCache {
    slots: usize,
    order: BTreeSet<(Rank, usize)>,
    /// The rank of each expert in `order`.
    ranks: HashMap<usize, Rank>,
}

impl SlotCache {
    pub fn new(slots: usize) -> Self {
        Self { slots, order: BTreeSet::new(), ranks: HashMap::new() }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Brings experts into slots, no more than there are. Returns how many were in none.
    pub fn take(
        &mut self,
        experts: impl ExactSizeIterator<Item = usize> + Clone,
        values: &dyn Values,
    ) -> usize {
        let (needed, mut missed) = (experts.len(), 0);
        for expert in experts.clone() {
            match self.ranks.remove(&expert) {
                Some(rank) => drop(self.order.remove(&(rank, expert))),
                None => missed += 1,
            }
        }
        // What remains in the order may be evicted.
        while self.order.len() + needed > self.slots
            && let Some((_, evicted)) = self.order.pop_first()
        {
            self.ranks.remove(&evicted);
        }
        for expert in experts {
            let rank = Rank(values.value(expert));
            self.ranks.insert(expert, rank);
            self.order.insert((rank, expert));
        }
        missed
    }
}
