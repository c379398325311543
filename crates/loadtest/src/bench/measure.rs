//! The measurements: prefill of prompts, decode at depths and batch sizes.

use super::machine::{Machine, Probe};
use super::spread::MedianRange;
use super::work::ForwardCost;
use anyhow::{Result, bail};
use engine::{Batch, KvType, Mode, Runner};
use kernels::layout::Activations;
use serde::Serialize;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct BenchPlan<'a> {
    /// Prompt lengths to prefill.
    pub prompts: &'a [usize],
    /// Tokens in the cache before decode.
    pub depths: &'a [usize],
    /// Numbers of sequences to decode together, at each depth.
    pub batches: &'a [usize],
    /// Tokens to generate.
    pub generate: usize,
    /// Repetitions of each measurement.
    pub runs: usize,
    /// Prefill chunk size.
    pub chunk: usize,
    /// Compute mode of the runner.
    pub mode: Mode,
    /// Type of its KV cache.
    pub kv_type: KvType,
}

impl BenchPlan<'_> {
    /// Number of measurements.
    pub fn measurements(&self) -> usize {
        self.prompts.len() + self.depths.len() * self.batches.len()
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    /// `prefill` or `decode`.
    pub phase: &'static str,
    /// Prompt length of prefill; tokens in the cache before decode.
    pub tokens: usize,
    pub batch: usize,
    pub tokens_per_second: MedianRange,
    /// Bytes of weights and cache read, per token.
    pub bytes_per_token: f64,
    pub bandwidth_gbs: f64,
    /// Share of the machine's read bandwidth.
    pub bandwidth_share: f64,
    pub gops: f64,
    /// Share of the machine's arithmetic peak for this type of weights.
    pub peak_share: f64,
}

/// Bytes and operations of one measurement, and its tokens.
struct Cost {
    tokens: u64,
    bytes: u64,
    operations: u64,
}

/// Runs the measurements of `plan`, sampling the machine before every run.
pub(super) fn run(
    runner: &mut Runner,
    probe: &mut Probe,
    plan: &BenchPlan<'_>,
    work: &ForwardCost,
    mut measured: impl FnMut(),
) -> Result<Vec<Measurement>> {
    let mut results = Vec::with_capacity(plan.measurements());
    for &prompt in plan.prompts {
        results.push(prefill(runner, probe, plan, prompt, work)?);
        measured();
    }
    for &depth in plan.depths {
        for &batch in plan.batches {
            results.push(decode(runner, probe, plan, (depth, batch), work)?);
            measured();
        }
    }
    Ok(results)
}

fn prefill(
    runner: &mut Runner,
    probe: &mut Probe,
    plan: &BenchPlan<'_>,
    prompt: usize,
    work: &ForwardCost,
) -> Result<Measurement> {
    if prompt == 0 {
        bail!("--prompt: expected at least one token, found 0");
    }
    let mut lanes = Lanes::new(runner, 1, prompt);
    lanes.feed(runner, prompt, plan.chunk)?; // warms up
    let mut rates = Vec::with_capacity(plan.runs);
    for _ in 0..plan.runs {
        probe.sample();
        lanes.len = 0;
        let start = Instant::now();
        lanes.feed(runner, prompt, plan.chunk)?;
        rates.push(prompt as f64 / start.elapsed().as_secs_f64());
    }
    let chunks = prompt.div_ceil(plan.chunk) as u64;
    let n = prompt as u64;
    let cost = Cost {
        tokens: n,
        bytes: chunks * work.weight_bytes + n * work.kv_bytes,
        operations: work.operations(n, n * (n + 1) / 2, 1),
    };
    Ok(measurement("prefill", (prompt, 1), rates, &cost))
}

fn decode(
    runner: &mut Runner,
    probe: &mut Probe,
    plan: &BenchPlan<'_>,
    (depth, batch): (usize, usize),
    work: &ForwardCost,
) -> Result<Measurement> {
    if batch == 0 {
        bail!("--batch: expected at least one sequence, found 0");
    }
    let mut lanes = Lanes::new(runner, batch, depth + plan.generate + 1);
    lanes.feed(runner, depth.max(1), plan.chunk)?;
    lanes.step(runner, 1)?; // warms up
    let before = lanes.len - 1;
    let mut rates = Vec::with_capacity(plan.runs);
    for _ in 0..plan.runs {
        probe.sample();
        lanes.len = before;
        let start = Instant::now();
        for _ in 0..plan.generate {
            lanes.step(runner, 1)?;
        }
        rates.push((batch * plan.generate) as f64 / start.elapsed().as_secs_f64());
    }
    // Positions seen by one sequence over the whole run, its own new ones included.
    let seen: u64 = (0..plan.generate).map(|i| (before + i + 1) as u64).sum();
    let (steps, batch_u64) = (plan.generate as u64, batch as u64);
    let cost = Cost {
        tokens: steps * batch_u64,
        bytes: steps * work.weight_bytes + batch_u64 * seen * work.kv_bytes,
        operations: work.operations(steps * batch_u64, batch_u64 * seen, steps * batch_u64),
    };
    Ok(measurement("decode", (depth, batch), rates, &cost))
}

fn measurement(
    phase: &'static str,
    (tokens, batch): (usize, usize),
    rates: Vec<f64>,
    cost: &Cost,
) -> Measurement {
    let rate = MedianRange::of(&rates);
    let per_token = |total: u64| total as f64 / cost.tokens as f64;
    Measurement {
        phase,
        tokens,
        batch,
        tokens_per_second: rate,
        bytes_per_token: per_token(cost.bytes),
        bandwidth_gbs: rate.median * per_token(cost.bytes) / 1e9,
        bandwidth_share: 0.0,
        gops: rate.median * per_token(cost.operations) / 1e9,
        peak_share: 0.0,
    }
}

impl Measurement {
    /// Sets the shares of what `machine` sustains.
    pub fn compare(&mut self, machine: &Machine, work: &ForwardCost) {
        let peak = match work.arithmetic {
            Activations::F32 => machine.f32_gops,
            Activations::Bf16 => machine.bf16_gops.unwrap_or(machine.f32_gops),
            Activations::Int8 => machine.int8_gops,
        };
        self.bandwidth_share = self.bandwidth_gbs / machine.read_bandwidth_gbs;
        self.peak_share = self.gops / peak;
    }
}

/// Sequences of one length that advance together.
struct Lanes {
    batch: Batch,
    /// The block table of each sequence.
    tables: Vec<Vec<u32>>,
    tokens: Vec<u32>,
    len: usize,
}

impl Lanes {
    fn new(runner: &Runner, count: usize, capacity: usize) -> Self {
        let blocks = capacity.div_ceil(runner.block()) as u32;
        let tables = (0..count as u32).map(|i| (i * blocks..(i + 1) * blocks).collect());
        let vocab = runner.info().vocab_size as u32;
        // The ids differ, so that the embedding rows do.
        let tokens = (0..runner.limits().rows as u32).map(|i| i.wrapping_mul(7919) % vocab);
        Self { batch: runner.batch(), tables: tables.collect(), tokens: tokens.collect(), len: 0 }
    }

    /// Computes `tokens` more tokens of each sequence, `chunk` of one sequence at a time.
    fn feed(&mut self, runner: &mut Runner, tokens: usize, chunk: usize) -> Result<()> {
        let (start, end) = (self.len, self.len + tokens);
        for table in &self.tables {
            for from in (start..end).step_by(chunk) {
                let to = end.min(from + chunk);
                self.batch.clear();
                let blocks = &table[..to.div_ceil(runner.block())];
                self.batch.push(&self.tokens[..to - from], from, blocks, usize::from(to == end));
                runner.forward(&self.batch)?;
            }
        }
        self.len = end;
        Ok(())
    }

    /// Computes `tokens` more tokens of all sequences together.
    fn step(&mut self, runner: &mut Runner, tokens: usize) -> Result<()> {
        self.batch.clear();
        let end = self.len + tokens;
        for table in &self.tables {
            let blocks = &table[..end.div_ceil(runner.block())];
            self.batch.push(&self.tokens[..tokens], self.len, blocks, 1);
        }
        runner.forward(&self.batch)?;
        self.len = end;
        Ok(())
    }
}
