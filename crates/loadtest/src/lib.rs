//! Measures of speed: of a model on this machine ([`bench()`]), and of a server with OpenAI's
//! protocol under load ([`LoadTest`]).
//!
//! Invariant: a load is bounded in requests, tokens and time, and stays on this machine unless
//! another one is allowed.

mod answer;
mod bench;
mod drive;
mod endpoint;
mod events;
mod lengths;
mod measures;
mod plot;
mod report;
mod target;
mod workload;

pub use bench::{BenchPlan, BenchReport, ConstraintRates, bench, bench_constrained};
pub use drive::{Events, LoadRun, RunEnd};
pub use endpoint::Endpoint;
pub use lengths::Lengths;
pub use measures::{Errors, GoodputLimits, LoadSummary};
pub use report::LoadReport;
pub use target::ServerOptions;

use anyhow::Result;
use drive::LoadPlan;
use std::time::Duration;
use target::Target;
use tokio::time::Instant;
use workload::{Arrivals, LoadPhase, Workload};

/// Requests in flight where neither a concurrency nor a rate is given.
const CONCURRENCY: usize = 8;
/// Maximum number of requests in flight, whatever the rate.
pub const MAX_CONCURRENCY: usize = 4096;

/// The load on a server.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Requests to measure.
    pub requests: usize,
    /// Maximum number of requests in flight; `None` for 8, or as many as arrive at a `rate`.
    pub concurrency: Option<usize>,
    /// Requests per second that arrive on average; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Maximum time of the whole test.
    pub duration: Duration,
    /// Maximum time of one request.
    pub timeout: Duration,
    /// Requests before the measured ones.
    pub warmup: usize,
    /// Tokens of a prompt.
    pub prompt: Lengths,
    /// Tokens of an answer.
    pub output: Lengths,
    /// Tokens that all prompts begin with.
    pub shared_prefix: usize,
    /// Seed of lengths, prompts, arrivals and sampling.
    pub seed: u64,
    /// Seed of the shared prefix; `None` for `seed`.
    pub prefix_seed: Option<u64>,
    /// Sampling temperature.
    pub temperature: f64,
}

/// A load with the server that it goes to.
#[derive(Debug)]
pub struct LoadTest {
    target: Target,
    load: LoadSpec,
    workload: Workload,
    deadline: Instant,
}

impl LoadTest {
    /// Finds the server. The time of the test begins now.
    ///
    /// # Errors
    ///
    /// No server at the address, an address of another machine that is not allowed, or a server
    /// that does not list what `options` leave out.
    pub async fn connect(options: &ServerOptions, load: LoadSpec) -> Result<Self> {
        let deadline = Instant::now() + load.duration;
        let target = Target::find(options).await?;
        let workload = load.workload(&target);
        Ok(Self { target, load, workload, deadline })
    }

    /// Sends the requests before the measured ones, in a closed loop.
    pub async fn warm_up(&self, events: Events<impl Future<Output = ()>, impl FnMut()>) -> RunEnd {
        let plan = LoadPlan { requests: self.load.warmup, arrivals: None, ..self.plan() };
        let phase = LoadPhase::WarmUp;
        drive::drive(&plan, &self.target, &self.workload, phase, events).await.ended
    }

    /// Sends the measured requests.
    pub async fn run(&self, events: Events<impl Future<Output = ()>, impl FnMut()>) -> LoadRun {
        let phase = LoadPhase::Measured;
        drive::drive(&self.plan(), &self.target, &self.workload, phase, events).await
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

    fn plan(&self) -> LoadPlan {
        let load = &self.load;
        LoadPlan {
            requests: load.requests,
            at_once: load.at_once(),
            arrivals: load.rate.map(|rate| Arrivals::new(load.seed, rate)),
            temperature: load.temperature,
            timeout: load.timeout,
            deadline: self.deadline,
        }
    }
}

impl LoadSpec {
    /// Maximum number of requests in flight.
    fn at_once(&self) -> usize {
        let default = if self.rate.is_some() { MAX_CONCURRENCY } else { CONCURRENCY };
        self.concurrency.unwrap_or(default)
    }

    fn workload(&self, target: &Target) -> Workload {
        let prefix_seed = self.prefix_seed.unwrap_or(self.seed);
        Workload {
            seed: self.seed,
            prefix: workload::prefix(prefix_seed, self.shared_prefix, target.vocabulary),
            vocabulary: target.vocabulary,
            prompt: self.prompt,
            output: self.output,
        }
    }
}
