//! Drafters that compute: token by token, for all sequences that still pay in one batch.

use crate::load::error::Error;
use crate::load::runner::Runner;
use crate::step::running_request::RunningRequest;
use crate::step::step_cost::StepCost;
use sched::{Scheduler, Slot, SlotTable};

/// A sequence that is drafted for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub slot: Slot,
    /// Its number among the sequences that decode.
    pub sequence: usize,
    /// Probability that all its drafts so far come out.
    pub chance: f32,
    /// Its row in the batch before.
    pub row: usize,
    /// Whether a further token may follow.
    pub is_open: bool,
}

/// A drafter that gives each of its sequences one token more with every batch.
pub(crate) trait DepthDrafter {
    /// What it is, for messages.
    fn name(&self) -> &'static str;

    /// The sequences of the next batch.
    fn candidates(&mut self) -> &mut Vec<Candidate>;

    /// Seconds of a batch by its number of rows.
    fn cost(&self) -> &StepCost;

    /// Rows of the next batch, which gives the tokens at `depth`.
    fn rows(&self, depth: usize) -> usize;

    /// Most tokens that are drafted for a sequence in a step.
    fn most(&self, runner: &Runner) -> usize;

    /// Tries the drafter again, which was not expected to pay.
    fn begin_trial(&mut self) {}

    /// Whether it is being tried and has given no token yet.
    fn is_on_trial(&self) -> bool {
        false
    }

    /// Drafts the token at `depth` for each candidate. A sequence that takes no further token is no
    /// longer open.
    ///
    /// # Errors
    /// If the device fails.
    fn draft(
        &mut self,
        runner: &mut Runner,
        scheduler: &Scheduler,
        requests: &mut SlotTable<RunningRequest>,
        depth: usize,
    ) -> Result<(), Error>;
}
