//! Sends the load: a number of requests at once, or as they arrive.

use super::LoadTest;
use super::answer::{MeasuredAnswer, RequestFailure};
use super::workload::{Arrivals, LoadPhase};
use serde::Serialize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

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

impl LoadTest {
    /// Sends the requests of `phase` until all are answered, the deadline, or `interrupted`
    /// completes; calls `answered` after each request that ended. Only measured requests arrive at
    /// a rate.
    pub(super) async fn drive(
        &self,
        phase: LoadPhase,
        interrupted: impl Future,
        mut answered: impl FnMut(),
    ) -> LoadRun {
        let (mut interrupted, load) = (pin!(interrupted), &self.load);
        let (requests, rate) = match phase {
            LoadPhase::WarmUp => (load.warmup, None),
            LoadPhase::Measured => (load.requests, load.rate),
        };
        let mut arrivals = rate.map(|rate| Arrivals::new(load.seed, rate));
        let mut next_due = || arrivals.as_mut().map(Arrivals::next);
        let start = Instant::now();
        let (mut due, mut sent) = (next_due(), 0);
        let (mut tasks, mut outcomes) = (JoinSet::new(), Vec::with_capacity(requests));
        let ended = loop {
            if sent == requests && tasks.is_empty() {
                break RunEnd::Done;
            }
            let more = sent < requests && tasks.len() < load.at_once();
            tokio::select! {
                biased;
                _ = &mut interrupted => break RunEnd::Interrupted,
                () = sleep_until(self.deadline) => break RunEnd::Deadline,
                Some(outcome) = tasks.join_next() => {
                    outcomes.push(outcome.expect("a task that was not aborted"));
                    answered();
                }
                () = sleep_until(start + due.unwrap_or_default()), if more => {
                    let (target, ask) = (Arc::clone(&self.target), self.workload.ask(phase, sent));
                    tasks.spawn(async move {
                        let at = start.elapsed();
                        let late = due.map_or(Duration::ZERO, |due| at.saturating_sub(due));
                        let result = target.send(&ask).await;
                        Outcome { at: at.as_secs_f64(), late: late.as_secs_f64(), result }
                    });
                    (due, sent) = (next_due(), sent + 1);
                }
            }
        };
        // Requests in flight are aborted with their tasks.
        LoadRun { outcomes, unfinished: tasks.len(), seconds: start.elapsed().as_secs_f64(), ended }
    }
}
