//! Counts of drafted tokens, by drafter, place and number.

use crate::observe::drafter::{Drafter, MAX_DRAFTED};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicU64;

type ByDrafter<M = Counter> = Family<[(&'static str, &'static str); 1], M>;
type Share = Gauge<f64, AtomicU64>;
type ByDrafterAndPlace = Family<[(&'static str, String); 2], Counter>;

/// What became of the tokens of a drafter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftStats {
    /// The drafter.
    pub drafter: Drafter,
    /// Its tokens that were verified.
    pub drafted: u64,
    /// Those of them that were accepted.
    pub accepted: u64,
    /// Time of a batch that drafts one token over that of a step of one row, of drafters that
    /// compute and have been measured.
    pub cost: Option<f64>,
}

/// The numbers of `steps` by the number of drafted tokens, from 0 on, as text: those above 0.
pub fn steps_by_drafts(steps: &[u64]) -> String {
    let some = steps.iter().enumerate().filter(|(_, steps)| **steps > 0);
    let some: Vec<String> = some.map(|(drafts, steps)| format!("{drafts}: {steps}")).collect();
    some.join(", ")
}

/// The counters of one drafter, the members of the families below.
#[derive(Debug)]
struct DrafterCounters {
    drafted: Counter,
    accepted: Counter,
    /// Accepted tokens by place in the draft.
    places: [Counter; MAX_DRAFTED],
    /// What a draft costs; not a number until one has been measured.
    cost: Share,
}

/// Counts of drafted tokens.
#[derive(Debug)]
pub(super) struct DraftMetrics {
    pub drafted: ByDrafter,
    pub accepted: ByDrafter,
    pub places: ByDrafterAndPlace,
    pub lengths: Family<[(&'static str, String); 1], Counter>,
    pub costs: ByDrafter<Share>,
    drafters: [DrafterCounters; Drafter::ALL.len()],
    /// Sequences of steps by the number of drafts that were verified for them.
    numbers: [Counter; MAX_DRAFTED + 1],
}

impl Default for DraftMetrics {
    fn default() -> Self {
        let (drafted, accepted) = (ByDrafter::default(), ByDrafter::default());
        let (places, lengths) = (ByDrafterAndPlace::default(), Family::default());
        let costs = ByDrafter::<Share>::default();
        let drafters = Drafter::ALL.map(|drafter| {
            let name = drafter.name();
            let of = |family: &ByDrafter| family.get_or_create_owned(&[("drafter", name)]);
            let cost = costs.get_or_create_owned(&[("drafter", name)]);
            cost.set(f64::NAN);
            let place = |place: usize| {
                let labels = [("drafter", name.to_owned()), ("position", place.to_string())];
                places.get_or_create_owned(&labels)
            };
            let places = std::array::from_fn(place);
            let (drafted, accepted) = (of(&drafted), of(&accepted));
            DrafterCounters { drafted, accepted, places, cost }
        });
        let number = |number: usize| lengths.get_or_create_owned(&[("drafts", number.to_string())]);
        let numbers = std::array::from_fn(number);
        Self { drafters, numbers, drafted, accepted, places, lengths, costs }
    }
}

impl DraftMetrics {
    /// Counts a step of a sequence that verified `drafted` tokens of `drafter`, and accepted some.
    pub fn add(&self, drafter: Drafter, drafted: usize, accepted: usize) {
        self.numbers[drafted.min(MAX_DRAFTED)].inc();
        let counts = &self.drafters[drafter as usize];
        counts.drafted.inc_by(drafted as u64);
        counts.accepted.inc_by(accepted as u64);
        for place in counts.places.iter().take(accepted) {
            place.inc();
        }
    }

    /// Sets the time of a batch of `drafter` that drafts one token over that of a step of one row.
    pub fn set_cost(&self, drafter: Drafter, cost: f64) {
        self.drafters[drafter as usize].cost.set(cost);
    }

    /// What became of the tokens of each drafter.
    pub fn stats(&self) -> impl Iterator<Item = DraftStats> {
        let both = Drafter::ALL.into_iter().zip(&self.drafters);
        both.map(|(drafter, counts)| DraftStats {
            drafter,
            drafted: counts.drafted.get(),
            accepted: counts.accepted.get(),
            cost: Some(counts.cost.get()).filter(|cost| !cost.is_nan()),
        })
    }

    /// Sequences of steps by the number of drafts that were verified for them, from 0 on.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().map(Counter::get)
    }
}
