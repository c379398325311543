//! `gannet experts simulate`: a recorded trace over rules of eviction.

use crate::output;
use crate::size::bytes;
use anyhow::{Result, anyhow};
use backend::Heat;
use engine::routes::RouteTrace;
use loadtest::{SlotCount, simulate_evictions};
use std::path::PathBuf;

/// Replay a trace that --route-trace wrote, and print how many choices find their expert in memory
///
/// The columns are Belady's rule, which knows the future and is the best possible; least recently
/// used; and heat, the rule of gannet. Bytes per token are those read from disk. Only steps without
/// prompts are counted, but prompts take memory as well.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of the trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// Memory for experts, such as 4GiB; several with commas
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = memory)]
    memory: Vec<SlotCount>,
    /// Memory for a share of all experts, such as 1/4; several with commas [default: 1/8,1/4,1/2
    /// without --memory]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    slots: Vec<SlotCount>,
    /// Steps after which a use counts half
    #[arg(long, value_name = "STEPS", default_value_t = Heat::HALF_LIFE)]
    half_life: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn memory(text: &str) -> Result<SlotCount> {
    Ok(SlotCount::Bytes(bytes(text)?))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let trace = RouteTrace::read(&args.trace).map_err(|problem| anyhow!(problem))?;
    let mut memories = [args.memory.as_slice(), &args.slots].concat();
    if memories.is_empty() {
        memories = [8, 4, 2].map(|of| SlotCount::Share { part: 1, of }).to_vec();
    }
    let report = simulate_evictions(&trace, &memories, args.half_life)?;
    output::report(args.json, || &report, || report.to_table())
}
