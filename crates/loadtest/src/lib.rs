//! Measures of speed: of a model on this machine ([`bench()`]), and of a server with OpenAI's
//! protocol under load ([`LoadTest`]).
//!
//! Invariant: a load is bounded in requests, tokens and time, and stays on this machine unless
//! another one is allowed.

mod bench;
mod endpoint;
mod eviction;
mod lengths;
mod load_test;
mod measured_answer;
mod measures;
mod plot;
mod report;
mod run;
mod spec;
mod target;
mod workload;

pub use bench::{
    BenchPlan, BenchReport, ConstraintRates, DiskPlan, DiskRates, ScalingReport, SpeculationRates,
    bench, bench_constrained, bench_disk, bench_scaling, bench_speculated,
};
pub use endpoint::Endpoint;
pub use eviction::{EvictionReport, SlotCount, simulate_evictions};
pub use lengths::Lengths;
pub use load_test::LoadTest;
pub use measures::{Errors, GoodputLimits, LoadSummary};
pub use report::LoadReport;
pub use run::{LoadRun, RunEnd};
pub use spec::{LoadSpec, ServerOptions};
