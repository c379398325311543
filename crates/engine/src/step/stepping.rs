//! A step from its plan to its events, in two parts: the launch, and the landing. Where stages of
//! several ranks share the model, further steps are launched in between.

use crate::load::error::Error;
use crate::observe::metrics::{RankStep, Step};
use crate::observe::outcome::Outcome;
use crate::step::flights::FlightTimes;
use crate::step::run::Engine;
use sched::{Planned, Slot};
use std::ops::Range;
use std::time::{Duration, Instant};

impl Engine {
    /// Launches the next step, or lets the oldest one land. Waits where there is none.
    ///
    /// # Errors
    /// If the step fails.
    pub(super) fn step(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        self.work_on_disk();
        let launched = self.may_launch() && self.launch(begun)?;
        if launched && self.may_launch() {
            return Ok(());
        }
        if self.flights.is_empty() {
            self.rank_clock = None;
            self.wait_for_readers();
            return Ok(());
        }
        self.land()
    }

    /// Whether another step can be launched, without this rank and the last stage waiting for each
    /// other.
    fn may_launch(&self) -> bool {
        self.flights.has_room()
            && (self.flights.is_empty() || self.runner.are_posted(self.flights.batches()))
    }

    /// Plans a step and launches it. Returns whether there is one.
    ///
    /// # Errors
    /// If it fails.
    fn launch(&mut self, begun: Instant) -> Result<bool, Error> {
        // What is drafted may be computed before.
        let early = self.drafts.computes().then(|| self.take_turn());
        self.runner.begin("plan");
        self.plan();
        if self.plan.is_empty() {
            return Ok(false);
        }
        let (turn, waited) = early.unwrap_or_else(|| self.take_turn());
        self.runner.begin("batch");
        self.batch();
        self.receiver.metrics.working(true);
        self.runner.begin("request_masks");
        self.request_masks();
        self.runner.launch(&self.batch)?;
        let times = FlightTimes { begun, waited, together: self.flights.len() + 1 };
        self.flights.push(&mut self.plan, &mut self.batch, (turn, times));
        Ok(true)
    }

    /// Samples the oldest step under way, commits it and sends its events.
    ///
    /// # Errors
    /// If it fails.
    fn land(&mut self) -> Result<(), Error> {
        let oldest = self.flights.pop(&mut self.plan, &mut self.batch);
        let Some((turn, times)) = oldest else { return Ok(()) };
        self.runner.begin("land");
        self.runner.land(&self.batch)?;
        self.runner.begin("sample");
        self.sample();
        drop(turn);
        self.runner.begin("commit");
        self.commit();
        self.runner.begin("emit");
        self.emit();
        self.record_step(times.took());
        Ok(())
    }

    /// Ends the sequences that `error` is about: those whose rows it names, or all of the step.
    /// Nothing of the steps under way is committed, so the others are planned again and lose
    /// nothing. Returns whether the engine can continue: not where weights and cache are gone, or
    /// ranks are no longer in step.
    pub(super) fn fail(&mut self, error: &Error) -> bool {
        let rows = rows_of(error);
        let is_about = |of: &Range<usize>| {
            rows.as_ref().is_none_or(|rows| rows.iter().any(|row| of.contains(&(*row as usize))))
        };
        let sequences = self.plan.iter().zip(self.batch.sequences());
        let failed = sequences.filter(|(_, sequence)| is_about(&sequence.rows));
        let failed: Vec<Slot> = failed.map(|(planned, _)| planned.slot).collect();
        self.recall_constraints();
        let may_go_on = match error {
            Error::Backend(backend::Error::Lost(_)) => false,
            _ if self.runner.ranks().are_several() => rows.is_some() && self.discard_flights(),
            _ => true,
        };
        self.scheduler.discard_uncommitted();
        self.note_preempted();
        for slot in failed {
            self.remove(slot, Some(Outcome::Failed(error.to_string())));
        }
        self.end_ending();
        self.report();
        if !may_go_on {
            tracing::error!("{error}");
        }
        may_go_on
    }

    /// Lets the steps under way land, whose rows are not used. Returns whether the ranks are still
    /// in step.
    fn discard_flights(&mut self) -> bool {
        // The other slices of a stage have not seen the error.
        let mut in_step = self.runner.ranks().slices() == 1;
        while in_step && self.flights.pop(&mut self.plan, &mut self.batch).is_some() {
            let landed = self.runner.land_unrecorded(&self.batch);
            in_step = landed.err().is_none_or(|error| rows_of(&error).is_some());
            self.recall_constraints();
        }
        in_step
    }

    /// Takes constraints back from a step that failed, and ends the sequences whose constraint
    /// fails over it.
    fn recall_constraints(&mut self) {
        for at in 0..self.plan.len() {
            let Planned { slot, samples, .. } = self.plan[at];
            if !samples {
                continue;
            }
            let running = &mut self.requests[slot];
            running.constraint.take_back(&self.masks);
            if let Some(outcome) = running.discard_draft() {
                self.remove(slot, Some(outcome));
            }
        }
    }

    /// Reports a step to the prefill budget and the metrics.
    fn record_step(&mut self, took: Duration) {
        let (rows, sequences) = (self.batch.rows(), self.plan.len());
        // A row that samples decodes, whether it is the last of a prompt or not.
        let decodes = |planned: &&Planned| planned.tokens == 1 && planned.samples;
        let decoding = self.plan.iter().filter(decodes);
        let prompt = rows - decoding.map(|planned| 1 + planned.drafts).sum::<usize>();
        if !self.runner.take_prepared() {
            self.prefill_budget.observe(rows, prompt, took);
            if prompt == 0 {
                let drafting = self.drafts.took();
                self.drafts.cost.observe(rows, took.saturating_sub(drafting));
            }
        }
        self.receiver.metrics.step(Step { rows, sequences, took });
        self.report_ranks();
        self.report();
    }

    /// Reports what this rank has sent to others and waited for since the last step, or since steps
    /// are under way again.
    fn report_ranks(&mut self) {
        let ranks = self.runner.ranks();
        if !ranks.are_several() {
            return;
        }
        let (now, traffic) = (Instant::now(), ranks.traffic());
        if let Some((since, before)) = self.rank_clock.replace((now, traffic)) {
            self.receiver.metrics.ranks(RankStep {
                took: now - since,
                waited: traffic.time.saturating_sub(before.time),
                bytes: traffic.bytes - before.bytes,
            });
        }
    }
}

/// The rows of a batch that an error is about, where it is about some.
fn rows_of(error: &Error) -> Option<Vec<u32>> {
    match error {
        Error::Model(error) => error.rows(),
        Error::Backend(backend::Error::Weights { rows, .. }) => Some(rows.clone()),
        _ => None,
    }
}
