//! Sends a load to a server: a number of requests at once, or as they arrive.

use crate::measures::{GoodputLimits, LoadSummary};
use crate::report::LoadReport;
use crate::run::{LoadRun, Outcome, RunEnd};
use crate::spec::{LoadSpec, ServerOptions};
use crate::target::Target;
use crate::workload::{Arrivals, LoadPhase, Workload};
use anyhow::Result;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// A load with the server that it goes to.
#[derive(Debug)]
pub struct LoadTest {
    target: Arc<Target>,
    load: LoadSpec,
    workload: Workload,
    deadline: Instant,
}

impl LoadTest {
    /// Finds the server at `url`, with or without `/v1`. The time of the test begins now.
    ///
    /// # Errors
    ///
    /// No server at the address, an address of another machine that is not allowed, or a server
    /// that does not list what `options` leave out.
    pub async fn connect(url: &str, options: &ServerOptions, load: LoadSpec) -> Result<Self> {
        let deadline = Instant::now() + load.duration;
        let target = Arc::new(Target::find(url, options, &load).await?);
        let workload = load.workload(target.vocabulary);
        Ok(Self { target, load, workload, deadline })
    }

    /// Sends the requests before the measured ones, in a closed loop, until `interrupted`
    /// completes; calls `answered` after each request that ended.
    pub async fn warm_up(&self, interrupted: impl Future, answered: impl FnMut()) {
        self.drive(LoadPhase::WarmUp, interrupted, answered).await;
    }

    /// Sends the measured requests, in the same way.
    pub async fn run(&self, interrupted: impl Future, answered: impl FnMut()) -> LoadRun {
        self.drive(LoadPhase::Measured, interrupted, answered).await
    }

    /// The numbers of `run`; `limits` are those of a good request.
    pub fn report<'a>(
        &'a self,
        run: &'a LoadRun,
        limits: Option<&GoodputLimits>,
    ) -> LoadReport<'a> {
        let summary = LoadSummary::of(run, limits);
        LoadReport { target: &self.target, load: &self.load, run, summary }
    }

    /// Sends the requests of `phase` until all are answered, the deadline, or `interrupted`
    /// completes; calls `answered` after each request that ended. Only measured requests arrive at
    /// a rate.
    async fn drive(
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
