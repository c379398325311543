//! The measurements: prefill of prompts, decode at depths and batch sizes.

use super::ids::TokenIds;
use super::machine::{Machine, Probe};
use super::spread::MedianRange;
use super::work::ForwardCost;
use crate::spec::between;
use anyhow::{Context, Result, bail};
use backend::StreamStats;
use backend::{AdapterSet, Batch, ScaledAdapter};
use engine::{MAX_DRAFTED, Runner, SequenceMemory};
use kernels::layout::Activations;
use serde::Serialize;
use std::path::PathBuf;
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
          value_parser = between(0, MAX_DRAFTED as u64))]
    pub guesses: Vec<usize>,
    /// Measure decoding once more with drafts, as many as the engine chooses, where the draft at
    /// each place comes out with this probability after the ones before it, such as 0.8,0.7;
    /// verdicts are drawn by seed
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share)]
    pub synthetic_acceptance: Vec<f32>,
    /// Measure decoding once more, in turns, where each sequence has another low-rank adapter of
    /// this rank, random values for all projections of the layers
    #[arg(long, value_name = "RANK", value_parser = between(1, formats::adapter::MAX_RANK as u64))]
    pub adapter_rank: Option<usize>,
    /// Repetitions of each measurement
    #[arg(long, default_value_t = 5, value_parser = between(1, u32::MAX.into()))]
    pub runs: usize,
    /// Prefill chunk size: maximum prompt tokens per step
    #[arg(long, default_value_t = 512, value_parser = between(1, u32::MAX.into()))]
    pub chunk: usize,
    /// Feed the token ids in this file, a JSON array, one after another, and again from the first
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
}

impl BenchPlan {
    /// Number of measurements.
    pub fn measurements(&self) -> usize {
        let shapes = self.depth.len() * self.batch.len();
        let decoded = shapes * self.guesses.len() * (1 + usize::from(self.adapter_rank.is_some()));
        self.prompt.len() + decoded + shapes * usize::from(!self.synthetic_acceptance.is_empty())
    }

    /// Maximum number of drafts of a sequence in a step.
    pub fn most_drafts(&self) -> usize {
        let guesses = self.guesses.iter().copied().max().unwrap_or(0);
        guesses.max(self.synthetic_acceptance.len())
    }
}

fn share(text: &str) -> Result<f32> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.with_context(|| format!("expected shares from 0 to 1, found {text:?}"))
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    /// `prefill`, `decode`, `verify` for decoding with guesses, `adapted` for decoding with
    /// adapters, or `drafted` for decoding with as many drafts as the engine chooses.
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
    /// What the engine chose, where it chose the number of drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafted: Option<Drafted>,
}

/// How many drafts the engine chose.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Drafted {
    /// Steps of a sequence by the number of drafts, from 0 on.
    pub steps: Vec<u64>,
    /// Tokens a second that the times of steps promise for the best number.
    pub promised: f64,
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
    pub ids: TokenIds,
}

impl Bench<'_> {
    /// Takes the measurements of the plan, and calls `measured` after each.
    ///
    /// # Errors
    /// If a step of the model fails.
    pub fn run(&mut self, mut measured: impl FnMut()) -> Result<Vec<Measurement>> {
        let plan = self.plan;
        let shares = plan.synthetic_acceptance.len();
        if shares > MAX_DRAFTED {
            bail!("--synthetic-acceptance: expected at most {MAX_DRAFTED} shares, found {shares}");
        }
        let mut results = Vec::with_capacity(plan.measurements());
        for &prompt in &plan.prompt {
            results.push(self.prefill(prompt)?);
            measured();
        }
        for &depth in &plan.depth {
            for &batch in &plan.batch {
                for &guesses in &plan.guesses {
                    for measurement in self.decode(depth, batch, guesses)? {
                        results.push(measurement);
                        measured();
                    }
                }
                if !plan.synthetic_acceptance.is_empty() {
                    results.push(self.drafted(depth, batch)?);
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
        let mut lanes = Lanes::new(self.runner, 1, &self.ids);
        lanes.feed(self.runner, prompt, chunk)?; // warms up
        let runs = self.time(prompt, 1, |runner, _| {
            lanes.len = 0;
            lanes.feed(runner, prompt, chunk)
        })?;
        let (n, chunks) = (prompt as u64, prompt.div_ceil(chunk) as u64);
        let cost = Cost {
            tokens: n,
            bytes: chunks * work.weight_bytes + n * work.kv_bytes,
            operations: work.operations(n, n * (n + 1) / 2, 1),
        };
        Ok(measurement("prefill", [prompt, 1, 0], &runs[0], &cost))
    }

    /// Decoding without adapters, and with them where the plan has some.
    fn decode(&mut self, depth: usize, batch: usize, guesses: usize) -> Result<Vec<Measurement>> {
        if batch == 0 {
            bail!("--batch: expected at least one sequence, found 0");
        }
        let (steps, rows, work) = (self.plan.generate, 1 + guesses, self.cost);
        let mut lanes = Lanes::new(self.runner, batch, &self.ids);
        lanes.feed(self.runner, depth.max(1), self.plan.chunk)?;
        let before = lanes.len;
        let adapters = self.adapters(batch)?;
        let kinds = if adapters.is_empty() { 1 } else { 2 };
        for _ in 0..kinds {
            // Warms up.
            lanes.step(self.runner, guesses)?;
            lanes.adapters.clone_from(&adapters);
        }
        let runs = self.time(batch * rows * steps, kinds, |runner, kind| {
            lanes.len = before;
            lanes.adapters.clear();
            lanes.adapters.extend(adapters.iter().take(kind * batch).cloned());
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
        let phases = [phase, "adapted"].into_iter().zip(&runs);
        let measured =
            phases.map(|(phase, runs)| measurement(phase, [depth, batch, guesses], runs, &cost));
        Ok(measured.collect())
    }

    /// Decoding with as many drafts as the engine chooses.
    fn drafted(&mut self, depth: usize, batch: usize) -> Result<Measurement> {
        let (rates, drafted) = self.decode_drafted(depth, batch)?;
        let steps: u64 = drafted.steps.iter().sum();
        let rows = drafted.steps.iter().zip(1..).map(|(steps, rows)| steps * rows).sum::<u64>();
        // Bytes and operations of the mean step, for the tokens that it gives.
        let tokens = (batch * self.plan.generate * self.plan.runs) as u64;
        let (work, forwards) = (self.cost, steps / batch as u64);
        let cost = Cost {
            tokens,
            bytes: forwards * work.weight_bytes + steps * depth as u64 * work.kv_bytes,
            operations: work.operations(rows, rows * depth as u64, rows),
        };
        let runs = Runs { rates, experts: None };
        let measured = measurement("drafted", [depth, batch, 0], &runs, &cost);
        Ok(Measurement { drafted: Some(drafted), ..measured })
    }

    /// Another random adapter for each of `count` sequences, or none.
    fn adapters(&self, count: usize) -> Result<Vec<AdapterSet>> {
        let Some(rank) = self.plan.adapter_rank else { return Ok(Vec::new()) };
        let random = |seed: usize| {
            let adapter = self.runner.adapter_base().random(rank, seed as u64)?;
            Ok(AdapterSet::new([ScaledAdapter { adapter, scale: 1.0 }]))
        };
        (0..count).map(random).collect()
    }

    /// Times runs of `kinds` kinds in turns, each of which computes `tokens`.
    fn time(
        &mut self,
        tokens: usize,
        kinds: usize,
        mut run: impl FnMut(&mut Runner, usize) -> Result<()>,
    ) -> Result<Vec<Runs>> {
        let mut all = vec![Vec::with_capacity(self.plan.runs); kinds];
        let (before, mut seconds) = (self.runner.stream_stats(), 0.0);
        for _ in 0..self.plan.runs {
            for (kind, rates) in all.iter_mut().enumerate() {
                self.probe.sample();
                let start = Instant::now();
                run(self.runner, kind)?;
                let took = start.elapsed().as_secs_f64();
                rates.push(tokens as f64 / took);
                seconds += took;
            }
        }
        let both = before.zip(self.runner.stream_stats());
        let experts = both.map(|(before, now)| StreamedExperts::between(before, now, seconds));
        Ok(all.into_iter().map(|rates| Runs { rates, experts }).collect())
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
        drafted: None,
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
pub(super) struct Lanes {
    pub batch: Batch,
    /// The part of the cache that each sequence has.
    pub memory: Vec<SequenceMemory>,
    pub ids: TokenIds,
    pub len: usize,
    /// Guesses of the step before, all right.
    right: usize,
    /// The adapters of each sequence, or none.
    adapters: Vec<AdapterSet>,
}

impl Lanes {
    pub fn new(runner: &Runner, count: usize, ids: &TokenIds) -> Self {
        let (batch, memory, ids) = (runner.batch(), runner.sequences(count), ids.clone());
        Self { batch, memory, ids, len: 0, right: 0, adapters: Vec::new() }
    }

    /// Computes `tokens` more tokens of each sequence, `chunk` of one sequence at a time.
    ///
    /// # Errors
    /// If a step of the model fails.
    pub fn feed(&mut self, runner: &mut Runner, tokens: usize, chunk: usize) -> Result<()> {
        let (start, end) = (self.len, self.len + tokens);
        for memory in &mut self.memory {
            let chunk = chunk.min(memory.most_rows());
            for from in (start..end).step_by(chunk) {
                let to = end.min(from + chunk);
                self.batch.clear();
                let tokens = self.ids.next(to - from, 0);
                memory.push(&mut self.batch, tokens, from, usize::from(to == end));
                runner.forward(&self.batch)?;
            }
        }
        (self.len, self.right) = (end, 0);
        Ok(())
    }

    /// Computes one more token of all sequences together, and `guesses` after it. Tokens differ
    /// between steps and sequences, so that the experts do that they choose.
    fn step(&mut self, runner: &mut Runner, guesses: usize) -> Result<()> {
        self.batch.clear();
        for (number, memory) in self.memory.iter_mut().enumerate() {
            let logits = 1 + guesses;
            let (known, guessed) = self.ids.next(logits, self.len + number * 31).split_at(1);
            memory.push_with(&mut self.batch, [known, guessed], self.len, (self.right, logits));
            if let Some(adapters) = self.adapters.get(number) {
                self.batch.adapt(adapters);
            }
        }
        runner.forward(&self.batch)?;
        (self.len, self.right) = (self.len + 1 + guesses, guesses);
        Ok(())
    }
}
