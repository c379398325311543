//! Sends the load: a number of requests at once, or as they arrive.

use super::answer::{MeasuredAnswer, RequestFailure};
use super::target::Target;
use super::workload::{Arrivals, LoadPhase, LoadRequest, Workload};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// How much is sent, and when.
#[derive(Clone, Debug)]
pub(super) struct LoadPlan {
    pub requests: usize,
    /// Maximum number of requests in flight.
    pub at_once: usize,
    /// Arrival times of the requests; `None` sends each as soon as `at_once` allows.
    pub arrivals: Option<Arrivals>,
    pub temperature: f64,
    /// Maximum time of one request.
    pub timeout: Duration,
    /// When everything ends.
    pub deadline: Instant,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All requests ended.
    Done,
    /// The time was up.
    Deadline,
    /// Ctrl-C.
    Interrupted,
}

/// The events between a run and its caller.
#[derive(Debug)]
pub struct Events<I, A> {
    /// Completes to interrupt the run.
    pub interrupted: I,
    /// Called after each request that ended.
    pub answered: A,
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

/// Sends the requests of `plan` until all are answered, the deadline, or an interruption.
pub(super) async fn drive(
    plan: &LoadPlan,
    target: &Target,
    workload: &Workload,
    part: LoadPhase,
    events: Events<impl Future<Output = ()>, impl FnMut()>,
) -> LoadRun {
    let Events { interrupted, mut answered } = events;
    let mut interrupted = pin!(interrupted);
    let target = Arc::new(target.clone());
    let mut arrivals = plan.arrivals.clone();
    let mut next_due = || arrivals.as_mut().map(Arrivals::next);
    let start = Instant::now();
    let (mut due, mut sent) = (next_due(), 0);
    let (mut tasks, mut outcomes) = (JoinSet::new(), Vec::with_capacity(plan.requests));
    let ended = loop {
        if sent == plan.requests && tasks.is_empty() {
            break RunEnd::Done;
        }
        let room = sent < plan.requests && tasks.len() < plan.at_once;
        tokio::select! {
            biased;
            () = &mut interrupted => break RunEnd::Interrupted,
            () = sleep_until(plan.deadline) => break RunEnd::Deadline,
            Some(outcome) = tasks.join_next() => {
                outcomes.push(outcome.expect("a task that was not aborted"));
                answered();
            }
            () = sleep_until(start + due.unwrap_or_default()), if room => {
                let ask = workload.ask(part, sent);
                let timing = RequestTiming { start, due, timeout: plan.timeout };
                tasks.spawn(timing.run(Arc::clone(&target), ask, plan.temperature));
                (due, sent) = (next_due(), sent + 1);
            }
        }
    };
    // Requests in flight are aborted with their tasks.
    LoadRun { outcomes, unfinished: tasks.len(), seconds: start.elapsed().as_secs_f64(), ended }
}

/// The time of one request.
#[derive(Clone, Copy, Debug)]
struct RequestTiming {
    start: Instant,
    due: Option<Duration>,
    timeout: Duration,
}

impl RequestTiming {
    async fn run(self, target: Arc<Target>, ask: LoadRequest, temperature: f64) -> Outcome {
        let at = self.start.elapsed();
        let late = self.due.map_or(Duration::ZERO, |due| at.saturating_sub(due));
        let result = match timeout(self.timeout, target.send(&ask, temperature)).await {
            Ok(result) => result,
            Err(_) => {
                Err(RequestFailure::new("timeout", format!("after {} s", self.timeout.as_secs())))
            }
        };
        Outcome { at: at.as_secs_f64(), late: late.as_secs_f64(), result }
    }
}
