//! The outcomes of a run.

use super::measured_answer::{MeasuredAnswer, RequestFailure};
use serde::Serialize;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// All requests ended.
    Done,
    /// The time was up.
    Deadline,
    /// Ctrl-C.
    Interrupted,
}

/// The outcome of one request that was not aborted.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// Seconds from the start of the run to when the request was sent.
    pub at: f64,
    /// Seconds that it was sent after its arrival.
    pub late: f64,
    pub result: Result<MeasuredAnswer, RequestFailure>,
}

/// The outcomes of a run.
#[derive(Clone, Debug)]
pub struct LoadRun {
    pub(super) outcomes: Vec<Outcome>,
    /// Requests that were aborted when the run ended.
    pub(super) unfinished: usize,
    /// Seconds from the first request to the end.
    pub(super) seconds: f64,
    /// Why it ended.
    pub ended: RunEnd,
}
