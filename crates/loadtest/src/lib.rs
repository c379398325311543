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
mod eviction;
mod lengths;
mod measures;
mod plot;
mod report;
mod spec;
mod target;
mod workload;

pub use bench::{
    BenchPlan, BenchReport, ConstraintRates, DiskPlan, DiskRates, ScalingReport, bench,
    bench_constrained, bench_disk, bench_scaling,
};
pub use drive::{LoadRun, RunEnd};
pub use endpoint::Endpoint;
pub use eviction::{EvictionReport, SlotCount, simulate_evictions};
pub use lengths::Lengths;
pub use measures::{Errors, GoodputLimits, LoadSummary};
pub use report::LoadReport;
pub use spec::{LoadSpec, ServerOptions};

use anyhow::Result;
use std::sync::Arc;
use target::Target;
use tokio::time::Instant;
use workload::{LoadPhase, Workload};

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
}
