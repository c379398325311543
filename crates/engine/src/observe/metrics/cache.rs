//! Counts of the caches: blocks of each group of rows, slots of states, and what prompts found.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Gauges by group of rows: `all` for rows that all later positions look at, else the number of
/// positions that look at a row.
type GroupGauge = Family<[(&'static str, String); 1], Gauge>;
type CauseCounter = Family<[(&'static str, &'static str); 1], Counter>;

/// What became of the tokens of a prompt that were looked up in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Tokens looked up.
    pub queried: usize,
    /// Tokens found, which are not computed.
    pub found: usize,
    /// Tokens after these that the blocks of the trunk hold, computed again because a group with a
    /// window does not hold the rows that they look at.
    pub without_rows: usize,
    /// The same, because there is no snapshot of the states before them.
    pub without_state: usize,
}

/// The labels of the tokens of a [`Lookup`], in the order of [`Lookup::counts`].
pub(super) const CAUSES: [&str; 4] = ["found", "no_rows", "no_state", "unknown"];

impl Lookup {
    /// Numbers of tokens in the order of [`CAUSES`]; they add up to those looked up.
    fn counts(&self) -> [u64; CAUSES.len()] {
        let known = self.found + self.without_rows + self.without_state;
        let unknown = self.queried.saturating_sub(known);
        [self.found, self.without_rows, self.without_state, unknown].map(|count| count as u64)
    }
}

#[derive(Debug)]
pub(super) struct CacheMetrics {
    pub used: GroupGauge,
    pub cached: GroupGauge,
    pub free: GroupGauge,
    pub total: GroupGauge,
    /// The greatest share of the blocks of a group that sequences hold.
    pub usage: Gauge<f64, AtomicU64>,
    /// The members of the families by number of the group, found without hashing.
    groups: OnceLock<Vec<GroupGauges>>,
    pub live_states: Gauge,
    pub kept_states: Gauge,
    pub free_states: Gauge,
    pub evicted_states: Counter,
    pub causes: CauseCounter,
    by_cause: [Counter; CAUSES.len()],
}

/// The gauges of one group.
#[derive(Debug)]
pub(super) struct GroupGauges {
    pub window: Option<usize>,
    pub used: Gauge,
    pub cached: Gauge,
    pub free: Gauge,
    pub total: Gauge,
}

impl Default for CacheMetrics {
    fn default() -> Self {
        let causes = CauseCounter::default();
        let by_cause = CAUSES.map(|cause| causes.get_or_create_owned(&[("cause", cause)]));
        Self {
            used: GroupGauge::default(),
            cached: GroupGauge::default(),
            free: GroupGauge::default(),
            total: GroupGauge::default(),
            usage: Gauge::default(),
            groups: OnceLock::new(),
            live_states: Gauge::default(),
            kept_states: Gauge::default(),
            free_states: Gauge::default(),
            evicted_states: Counter::default(),
            causes,
            by_cause,
        }
    }
}

impl CacheMetrics {
    /// Sets the windows of the groups, unless they are set.
    pub fn set_groups(&self, windows: &[Option<usize>]) -> &[GroupGauges] {
        self.groups.get_or_init(|| windows.iter().map(|&window| self.group(window)).collect())
    }

    fn group(&self, window: Option<usize>) -> GroupGauges {
        let label = [("group", window.map_or("all".into(), |window| window.to_string()))];
        GroupGauges {
            window,
            used: self.used.get_or_create_owned(&label),
            cached: self.cached.get_or_create_owned(&label),
            free: self.free.get_or_create_owned(&label),
            total: self.total.get_or_create_owned(&label),
        }
    }

    /// The groups; one without a window if no others are set.
    pub fn groups(&self) -> &[GroupGauges] {
        self.set_groups(&[None])
    }

    pub fn set_blocks(&self, group: usize, used: usize, cached: usize, free: usize) {
        let groups = self.groups();
        let Some(gauges) = groups.get(group) else { return };
        gauges.used.set(used as i64);
        gauges.cached.set(cached as i64);
        gauges.free.set(free as i64);
        gauges.total.set((used + cached + free) as i64);
        let share = |it: &GroupGauges| it.used.get() as f64 / it.total.get().max(1) as f64;
        self.usage.set(groups.iter().map(share).fold(0.0, f64::max));
    }

    pub fn add_lookup(&self, lookup: Lookup) {
        for (counter, count) in self.by_cause.iter().zip(lookup.counts()) {
            counter.inc_by(count);
        }
    }

    /// Tokens looked up so far in the order of [`CAUSES`].
    pub fn lookups(&self) -> [u64; CAUSES.len()] {
        self.by_cause.each_ref().map(|count| count.get())
    }
}
