//! Prefill and decode rates of a model on this machine, compared with what the machine sustains.

mod constrained;
mod machine;
mod measure;
mod report;
mod spread;
mod work;

pub use constrained::{ConstraintRates, bench_constrained};
pub use measure::BenchPlan;
pub use report::BenchReport;

use anyhow::Result;
use engine::Runner;
use formats::Checkpoint;
use machine::Probe;
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
    plan: &BenchPlan<'_>,
    measured: impl FnMut(),
) -> Result<BenchReport> {
    let mut probe = Probe::new(runner.threads())?;
    runner.pin_caller();
    let cost = ForwardCost::of(checkpoint, plan.mode, probe.isa, plan.kv_type);
    let mut results = measure::run(runner, &mut probe, plan, &cost, measured)?;
    let machine = probe.machine();
    results.iter_mut().for_each(|result| result.compare(&machine, &cost));
    Ok(BenchReport::new(runner, plan, checkpoint, machine, results))
}
