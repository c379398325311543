//! Steps that are launched and have not landed: where stages of several ranks share a model, each
//! can compute another step.

use crate::observe::outcome::Outcome;
use crate::step::turns::Turn;
use backend::Batch;
use sched::{Planned, Scheduler, Slot};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A step that is launched.
#[derive(Default)]
pub(super) struct Flight {
    pub plan: Vec<Planned>,
    pub batch: Batch,
    /// The turn among engines that share the processors.
    pub turn: Option<Turn>,
    pub times: FlightTimes,
}

/// When a step began.
#[derive(Clone, Copy)]
pub(super) struct FlightTimes {
    pub begun: Instant,
    /// Time that it waited for its turn.
    pub waited: Duration,
    /// Steps under way when it was launched, itself included.
    pub together: usize,
}

impl Default for FlightTimes {
    fn default() -> Self {
        Self { begun: Instant::now(), waited: Duration::ZERO, together: 1 }
    }
}

impl FlightTimes {
    /// The step's part of the time since it began.
    pub fn took(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.waited) / self.together as u32
    }
}

/// The steps under way.
pub(super) struct Flights {
    /// Most of them.
    most: usize,
    /// The oldest first.
    under_way: VecDeque<Flight>,
    spare: Vec<Flight>,
    /// Sequences that end when no step under way computes them.
    ending: Vec<(Slot, Option<Outcome>)>,
}

impl Flights {
    /// No steps. At most so many will be under way, each with a plan and a batch like these.
    pub fn new(most: usize, running: usize, batch: impl Fn() -> Batch) -> Self {
        let flight =
            || Flight { plan: Vec::with_capacity(running), batch: batch(), ..Flight::default() };
        let mut spare = Vec::with_capacity(most);
        spare.push(Flight::default());
        spare.extend((1..most).map(|_| flight()));
        Self { most, under_way: VecDeque::with_capacity(most), spare, ending: Vec::new() }
    }

    /// Whether no step is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether another step may be launched.
    pub fn has_room(&self) -> bool {
        self.under_way.len() < self.most
    }

    /// Number of steps under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// The batches under way.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.under_way.iter().map(|flight| &flight.batch)
    }

    /// Adds a step, whose plan and batch are taken; empty ones take their place.
    pub fn push(
        &mut self,
        plan: &mut Vec<Planned>,
        batch: &mut Batch,
        (turn, times): (Option<Turn>, FlightTimes),
    ) {
        let mut flight = self.spare.pop().unwrap_or_default();
        std::mem::swap(&mut flight.plan, plan);
        std::mem::swap(&mut flight.batch, batch);
        (flight.turn, flight.times) = (turn, times);
        self.under_way.push_back(flight);
    }

    /// Takes the oldest step, whose plan and batch take the place of these.
    pub fn pop(
        &mut self,
        plan: &mut Vec<Planned>,
        batch: &mut Batch,
    ) -> Option<(Option<Turn>, FlightTimes)> {
        let mut flight = self.under_way.pop_front()?;
        std::mem::swap(&mut flight.plan, plan);
        std::mem::swap(&mut flight.batch, batch);
        let found = (flight.turn.take(), flight.times);
        self.spare.push(flight);
        Some(found)
    }

    /// Has a sequence, part of a step under way, end later.
    pub fn end_later(&mut self, slot: Slot, outcome: Option<Outcome>) {
        if !self.is_ending(slot) {
            self.ending.push((slot, outcome));
        }
    }

    /// Whether a sequence ends later.
    pub fn is_ending(&self, slot: Slot) -> bool {
        self.ending.iter().any(|(ending, _)| *ending == slot)
    }

    /// Takes a sequence that ends and is part of no step any more.
    pub fn next_ended(&mut self, scheduler: &Scheduler) -> Option<(Slot, Option<Outcome>)> {
        let at = self.ending.iter().position(|(slot, _)| !scheduler.is_flying(*slot))?;
        Some(self.ending.swap_remove(at))
    }
}
