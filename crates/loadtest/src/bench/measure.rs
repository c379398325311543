//! The measurements: prefill of prompts, decode at depths and batch sizes.

use super::machine::{Machine, Probe};
use super::spread::MedianRange;
use super::work::ForwardCost;
use crate::spec::between;
use anyhow::{Result, bail};
use engine::metrics::StreamStats;
use engine::{Batch, Runner, SequenceMemory};
use kernels::layout::Activations;
use serde::Serialize;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchPlan {
    /// Prompt lengths to prefill, in tokens
    #[arg(long, value_delimiter = ',', default_value = "512")]
    pub prompt: Vec<usize>,
    /// Tokens in the cache before decoding
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub depth: Vec<usize>,
    /// Tokens to generate
    #[arg(long = "gen", default_value_t = 64, value_parser = between(1, u32::MAX.into()))]
    pub generate: usize,
    /// Sequences decoded together
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub batch: Vec<usize>,
    /// Guesses of a draft that each step of decoding verifies, all of which prove right; the rates
    /// count them as tokens
    #[arg(long, value_delimiter = ',', default_value = "0",
          value_parser = between(0, engine::MAX_DRAFTED as u64))]
    pub guesses: Vec<usize>,
    /// Repetitions of each measurement
    #[arg(long, default_value_t = 5, value_parser = between(1, u32::MAX.into()))]
    pub runs: usize,
    /// Prefill chunk size: maximum prompt tokens per step
    #[arg(long, default_value_t = 512)]
    pub chunk: usize,
}

impl BenchPlan {
    /// Number of measurements.
    pub fn measurements(&self) -> usize {
        self.prompt.len() + self.depth.len() * self.batch.len() * self.guesses.len()
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    /// `prefill`, `decode`, or `verify` for decoding with guesses.
    pub phase: &'static str,
    /// Prompt length of prefill; tokens in the cache before decode.
    pub tokens: usize,
    pub batch: usize,
    /// Guesses of each sequence in each step.
    pub guesses: usize,
    pub tokens_per_second: MedianRange,
    /// Bytes of weights and cache read, per token.
    pub bytes_per_token: f64,
    pub bandwidth_gbs: f64,
    /// Share of the machine's read bandwidth.
    pub bandwidth_share: f64,
    pub gops: f64,
    /// Share of the machine's arithmetic peak for this type of weights.
    pub peak_share: f64,
    /// What happened to experts that are read when tokens choose them, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<StreamedExperts>,
}

/// What happened to streamed experts while runs were timed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct StreamedExperts {
    /// Share of choices whose expert was in memory.
    pub hit_rate: f64,
    /// Bytes read, in GB per second of the whole time.
    pub read_gbs: f64,
    /// Share of what raw reads of the same size give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_share: Option<f64>,
    /// Share of the time in which computation waited for experts.
    pub wait_share: f64,
}

impl StreamedExperts {
    /// What happened between two readings, `seconds` apart.
    fn between(before: StreamStats, after: StreamStats, seconds: f64) -> Self {
        let hits = (after.hits - before.hits) as f64;
        let misses = (after.misses - before.misses) as f64;
        Self {
            hit_rate: hits / (hits + misses).max(1.0),
            read_gbs: (after.read_bytes - before.read_bytes) as f64 / seconds / 1e9,
            raw_share: None,
            wait_share: (after.wait - before.wait).as_secs_f64() / seconds,
        }
    }
}

/// The rates of some runs, and what happened to streamed experts meanwhile.
struct Runs {
    rates: Vec<f64>,
    experts: Option<StreamedExperts>,
}

/// Bytes and operations of one measurement, and its tokens.
struct Cost {
    tokens: u64,
    bytes: u64,
    operations: u64,
}

/// A model with the machine that it is measured on.
pub(super) struct Bench<'a> {
    pub runner: &'a mut Runner,
    pub probe: Probe,
    pub plan: &'a BenchPlan,
    pub cost: ForwardCost,
}

impl Bench<'_> {
    /// Takes the measurements of the plan, and calls `measured` after each.
    pub fn run(&mut self, mut measured: impl FnMut()) -> Result<Vec<Measurement>> {
        let plan = self.plan;
        let mut results = Vec::with_capacity(plan.measurements());
        for &prompt in &plan.prompt {
            results.push(self.prefill(prompt)?);
            measured();
        }
        for &depth in &plan.depth {
            for &batch in &plan.batch {
                for &guesses in &plan.guesses {
                    results.push(self.decode(depth, batch, guesses)?);
                    measured();
                }
            }
        }
        Ok(results)
    }

    fn prefill(&mut self, prompt: usize) -> Result<Measurement> {
        if prompt == 0 {
            bail!("--prompt: expected at least one token, found 0");
        }
        let (chunk, work) = (self.plan.chunk, self.cost);
        let mut lanes = Lanes::new(self.runner, 1);
        lanes.feed(self.runner, prompt, chunk)?; // warms up
        let runs = self.time(prompt, |runner| {
            lanes.len = 0;
            lanes.feed(runner, prompt, chunk)
        })?;
        let (n, chunks) = (prompt as u64, prompt.div_ceil(chunk) as u64);
        let cost = Cost {
            tokens: n,
            bytes: chunks * work.weight_bytes + n * work.kv_bytes,
            operations: work.operations(n, n * (n + 1) / 2, 1),
        };
        Ok(measurement("prefill", [prompt, 1, 0], &runs, &cost))
    }

    fn decode(&mut self, depth: usize, batch: usize, guesses: usize) -> Result<Measurement> {
        if batch == 0 {
            bail!("--batch: expected at least one sequence, found 0");
        }
        let (steps, rows, work) = (self.plan.generate, 1 + guesses, self.cost);
        let mut lanes = Lanes::new(self.runner, batch);
        lanes.feed(self.runner, depth.max(1), self.plan.chunk)?;
        let before = lanes.len;
        lanes.step(self.runner, guesses)?; // warms up
        let runs = self.time(batch * rows * steps, |runner| {
            lanes.len = before;
            (0..steps).try_for_each(|_| lanes.step(runner, guesses))
        })?;
        // Positions that one sequence reads over the whole run: in each step those of its last row.
        let read: u64 = (1..=steps).map(|step| (before + step * rows) as u64).sum();
        let seen: u64 = (1..=steps * rows).map(|row| (before + row) as u64).sum();
        let (steps, batch_u64) = (steps as u64, batch as u64);
        let tokens = steps * rows as u64 * batch_u64;
        let cost = Cost {
            tokens,
            bytes: steps * work.weight_bytes + batch_u64 * read * work.kv_bytes,
            operations: work.operations(tokens, batch_u64 * seen, tokens),
        };
        let phase = if guesses == 0 { "decode" } else { "verify" };
        Ok(measurement(phase, [depth, batch, guesses], &runs, &cost))
    }

    /// Times runs, each of which computes `tokens`.
    fn time(
        &mut self,
        tokens: usize,
        mut run: impl FnMut(&mut Runner) -> Result<()>,
    ) -> Result<Runs> {
        let (mut rates, mut seconds) = (Vec::with_capacity(self.plan.runs), 0.0);
        let before = self.runner.stream_stats();
        for _ in 0..self.plan.runs {
            self.probe.sample();
            let start = Instant::now();
            run(self.runner)?;
            let took = start.elapsed().as_secs_f64();
            rates.push(tokens as f64 / took);
            seconds += took;
        }
        let both = before.zip(self.runner.stream_stats());
        let experts = both.map(|(before, now)| StreamedExperts::between(before, now, seconds));
        Ok(Runs { rates, experts })
    }
}

fn measurement(
    phase: &'static str,
    [tokens, batch, guesses]: [usize; 3],
    runs: &Runs,
    cost: &Cost,
) -> Measurement {
    let rate = MedianRange::of(&runs.rates);
    let per_token = |total: u64| total as f64 / cost.tokens as f64;
    Measurement {
        phase,
        tokens,
        batch,
        guesses,
        tokens_per_second: rate,
        bytes_per_token: per_token(cost.bytes),
        bandwidth_gbs: rate.median * per_token(cost.bytes) / 1e9,
        bandwidth_share: 0.0,
        gops: rate.median * per_token(cost.operations) / 1e9,
        peak_share: 0.0,
        experts: runs.experts,
    }
}

impl Measurement {
    /// Sets the shares of what `machine` sustains.
    pub fn compare(&mut self, machine: &Machine, work: &ForwardCost) {
        let peak = match work.arithmetic {
            Activations::F32 | Activations::F32Panels => machine.f32_gops,
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
    /// The part of the cache that each sequence has.
    memory: Vec<SequenceMemory>,
    tokens: Vec<u32>,
    len: usize,
    /// Guesses of the step before, all right.
    right: usize,
}

impl Lanes {
    fn new(runner: &Runner, count: usize) -> Self {
        let memory = runner.sequences(count);
        let vocab = runner.info().vocab_size as u32;
        // The ids differ, so that the embedding rows do.
        let tokens = (0..runner.limits().rows as u32).map(|i| i.wrapping_mul(7919) % vocab);
        Self { batch: runner.batch(), memory, tokens: tokens.collect(), len: 0, right: 0 }
    }

    /// Computes `tokens` more tokens of each sequence, `chunk` of one sequence at a time.
    fn feed(&mut self, runner: &mut Runner, tokens: usize, chunk: usize) -> Result<()> {
        let (start, end) = (self.len, self.len + tokens);
        for memory in &mut self.memory {
            let chunk = chunk.min(memory.most_rows());
            for from in (start..end).step_by(chunk) {
                let to = end.min(from + chunk);
                self.batch.clear();
                let tokens = &self.tokens[..to - from];
                memory.push(&mut self.batch, tokens, from, usize::from(to == end));
                runner.forward(&self.batch)?;
            }
        }
        (self.len, self.right) = (end, 0);
        Ok(())
    }

    /// Computes one more token of all sequences together, and `guesses` behind it. Tokens differ
    /// between steps and sequences, so that the experts do that they choose.
    fn step(&mut self, runner: &mut Runner, guesses: usize) -> Result<()> {
        self.batch.clear();
        for (number, memory) in self.memory.iter_mut().enumerate() {
            let first = (self.len + number * 31) % (self.tokens.len() - guesses);
            let (known, guessed) = self.tokens[first..][..1 + guesses].split_at(1);
            let logits = 1 + guesses;
            memory.push_with(&mut self.batch, [known, guessed], self.len, (self.right, logits));
        }
        runner.forward(&self.batch)?;
        (self.len, self.right) = (self.len + 1 + guesses, guesses);
        Ok(())
    }
}
