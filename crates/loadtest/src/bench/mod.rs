//! Prefill and decode rates of a model on this machine, compared with what the machine sustains,
//! and how they scale with threads.

mod constrained;
mod disk;
mod drafted;
mod ids;
mod machine;
mod measure;
mod report;
mod scaling;
mod speculated;
mod spread;
mod work;

pub use constrained::{ConstraintRates, bench_constrained};
pub use disk::{DiskPlan, DiskRates, bench_disk};
pub use measure::BenchPlan;
pub use report::BenchReport;
pub use scaling::{ScalingReport, bench_scaling};
pub use speculated::{SpeculationRates, bench_speculated};

use anyhow::Result;
use backend::Bits;
use engine::Runner;
use formats::Checkpoint;
use ids::TokenIds;
use machine::Probe;
use measure::Bench;
use work::ForwardCost;

/// Takes the measurements of `plan`, sampling the machine before every run. `measured` is called
/// after each of them.
///
/// # Errors
///
/// A plan with an empty prompt or batch, and errors of the forward pass.
pub fn bench(
    runner: &mut Runner,
    checkpoint: &Checkpoint,
    plan: &BenchPlan,
    measured: impl FnMut(),
) -> Result<BenchReport> {
    let bits = Bits::of_arithmetic(&runner.settings().arithmetic);
    let probe = Probe::new(runner.threads(), bits)?;
    runner.pin_caller();
    let cost = ForwardCost::of(checkpoint, runner.settings(), probe.isa);
    // As many as the model takes in a step.
    let (vocab, rows) = (runner.info().vocab_size, runner.limits().rows);
    let ids = TokenIds::new(plan.ids.as_deref(), vocab, rows)?;
    let mut bench = Bench { runner, probe, plan, cost, ids };
    let mut results = bench.run(measured)?;
    let machine = bench.probe.machine();
    results.iter_mut().for_each(|result| result.compare(&machine, &cost));
    let settings = bench.runner.settings();
    Ok(BenchReport {
        model: bench.runner.info().name.clone(),
        architecture: checkpoint.config().architecture.clone(),
        mode: settings.mode.name(),
        kv_type: settings.kv_type.name(),
        arithmetic: settings.arithmetic.clone(),
        machine,
        disk: None,
        results,
    })
}
