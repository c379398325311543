//! Where the time of steps goes with different numbers of threads: in which operation of the
//! engine's loop, and whether threads compute there, wait for each other, or wait for one of them.
//!
//! Answers are sampled and go through the whole engine, as those of a server do.

use super::measure::BenchPlan;
use anyhow::{Context, Result, anyhow, bail};
use base::{OperationTime, Profile};
use engine::{EngineHandle, EngineOptions, Event, IDLE, Outcome, Request, Runner, SamplingParams};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Numbers of cores for which the shares of serial parts are computed.
const CORES: [usize; 3] = [16, 64, 128];
/// An operation that every step has once.
const STEP: &str = "batch";

/// The measurements of all cases and numbers of threads.
#[derive(Debug, Serialize)]
pub struct ScalingReport {
    model: String,
    isa: String,
    cases: Vec<ScalingCase>,
    serial: Vec<SerialParts>,
}

/// One case with one number of threads. The three shares are of the time of all threads together
/// and add up to 1.
#[derive(Debug, Serialize)]
struct ScalingCase {
    phase: &'static str,
    /// Length of prompts; tokens in the cache before decoding.
    tokens: usize,
    batch: usize,
    threads: usize,
    tokens_per_second: f64,
    /// Rate per thread, relative to that with the first number of threads.
    efficiency: f64,
    shares: Shares,
    operations: Vec<OperationShares>,
}

#[derive(Debug, Serialize)]
struct Shares {
    /// In pieces of shared work.
    compute: f64,
    /// Before the first and after the last piece of a thread, while others have some.
    waiting: f64,
    /// While one thread works alone.
    serial: f64,
}

#[derive(Debug, Serialize)]
struct OperationShares {
    operation: String,
    calls_per_step: f64,
    ms_per_step: f64,
    /// Share of the step.
    share: f64,
    shares: Shares,
    /// Pieces of one job: at most as many threads share it.
    pieces: f64,
}

/// The serial parts of a case, as the last number of threads has them, by size.
#[derive(Debug, Serialize)]
struct SerialParts {
    phase: &'static str,
    tokens: usize,
    batch: usize,
    /// Threads of the measurement.
    threads: usize,
    cores: [usize; 3],
    parts: Vec<SerialPart>,
}

#[derive(Debug, Serialize)]
struct SerialPart {
    operation: String,
    us_per_step: f64,
    /// Its share of a step with each number of cores, if all else were shared evenly by them.
    shares: [f64; 3],
}

/// Measures the prompts and the decoding of `plan` with each number of threads; `load` loads the
/// model with as many. `measured` is called after each number.
///
/// # Errors
///
/// Errors of loading and of the engine, and a device that takes no times.
pub fn bench_scaling(
    threads: &[usize],
    plan: &BenchPlan,
    load: impl Fn(usize) -> Result<Runner>,
    mut measured: impl FnMut(),
) -> Result<ScalingReport> {
    let (mut cases, mut serial): (Vec<ScalingCase>, _) = (Vec::new(), Vec::new());
    let (mut model, mut isa) = (String::new(), String::new());
    for &threads in threads {
        let runner = load(threads)?;
        (model, isa) = (runner.info().name.clone(), runner.isa());
        let mut driver = Driver::start(runner, plan)?;
        let all = driver.run(plan)?;
        driver.stop()?;
        let mut parts = Vec::with_capacity(all.len());
        for (mut case, times, steps) in all {
            let alike = |other: &&ScalingCase| {
                (other.phase, other.tokens, other.batch) == (case.phase, case.tokens, case.batch)
            };
            if let Some(first) = cases.iter().find(alike) {
                let rate = |case: &ScalingCase| case.tokens_per_second / case.threads as f64;
                case.efficiency = rate(&case) / rate(first);
            }
            parts.push(SerialParts::of(&case, &times, steps));
            cases.push(case);
        }
        // Of the last number: work is cut into more pieces for more threads.
        serial = parts;
        measured();
    }
    Ok(ScalingReport { model, isa, cases, serial })
}

/// An engine whose times are taken.
struct Driver {
    engine: EngineHandle,
    thread: JoinHandle<()>,
    profile: Arc<Profile>,
    threads: usize,
    /// Requests so far, which makes their prompts differ.
    requests: u32,
}

/// A case with its times and their number of steps.
type Measured = (ScalingCase, Vec<OperationTime>, f64);

impl Driver {
    fn start(mut runner: Runner, plan: &BenchPlan) -> Result<Self> {
        let (profile, threads) = (Arc::new(Profile::default()), runner.threads());
        runner.profile(Some(Arc::clone(&profile)));
        let running = plan.batch.iter().copied().max().unwrap_or(1);
        let (engine, thread) =
            engine::start(runner, EngineOptions { running, ..Default::default() });
        let mut driver = Self { engine, thread, profile, threads, requests: 0 };
        let warm = driver.request(plan.prompt.first().copied().unwrap_or(1), 2);
        driver.answer(vec![warm])?;
        Ok(driver)
    }

    fn run(&mut self, plan: &BenchPlan) -> Result<Vec<Measured>> {
        let mut all = Vec::new();
        for &prompt in &plan.prompt {
            let requests = (0..plan.runs).map(|_| self.request(prompt, 1)).collect::<Vec<_>>();
            self.profile.take();
            requests.into_iter().try_for_each(|request| self.answer(vec![request]))?;
            all.push(self.measured(("prefill", prompt, 1), prompt * plan.runs)?);
        }
        for (&depth, &batch) in
            plan.depth.iter().flat_map(|d| plan.batch.iter().map(move |b| (d, b)))
        {
            let requests: Vec<_> = (0..batch).map(|_| self.request(depth.max(1), 1)).collect();
            // Now their prompts are in the cache.
            self.answer(requests.clone())?;
            let answers = requests.into_iter().map(|request| Request {
                max_tokens: Some(plan.generate),
                min_tokens: plan.generate,
                ..request
            });
            let answers: Vec<_> = answers.collect();
            self.profile.take();
            self.answer(answers)?;
            all.push(self.measured(("decode", depth, batch), batch * plan.generate)?);
        }
        Ok(all)
    }

    /// Waits until the memory of the model is free.
    fn stop(self) -> Result<()> {
        drop(self.engine);
        self.thread.join().map_err(|_| anyhow!("the engine's thread failed"))
    }

    /// A request for `tokens` tokens after a prompt that no other has.
    fn request(&mut self, prompt: usize, tokens: usize) -> Request {
        let vocab = self.engine.info.vocab_size as u32;
        self.requests += 1;
        let first = self.requests;
        let ids = (0..prompt as u32).map(|at| (at.wrapping_mul(7919) + first) % vocab);
        Request {
            prompt: ids.collect(),
            max_tokens: Some(tokens),
            min_tokens: tokens,
            sampling: SamplingParams {
                temperature: 0.6,
                top_k: 20,
                top_p: 0.95,
                seed: Some(u64::from(first)),
                ..SamplingParams::default()
            },
            ..Request::default()
        }
    }

    /// Submits all requests and waits for their ends.
    fn answer(&self, requests: Vec<Request>) -> Result<()> {
        let all = requests.into_iter().map(|request| self.engine.submit(request));
        for mut generation in all.collect::<Result<Vec<_>, _>>()? {
            let finished = loop {
                let event = generation.next_blocking().context("the engine stopped")?;
                if let Event::Finished(finished) = event {
                    break finished;
                }
            };
            if let Outcome::Failed(problem) = finished.outcome {
                bail!(problem);
            }
        }
        Ok(())
    }

    /// The case that computed `count` tokens since times were last taken.
    fn measured(&self, case: (&'static str, usize, usize), count: usize) -> Result<Measured> {
        let (mut times, threads) = (self.profile.take(), self.threads);
        times.retain(|operation| operation.name != IDLE && operation.calls > 0);
        let steps = times.iter().find(|operation| operation.name == STEP);
        let steps = steps.context("--scaling: expected a device that takes times")?.calls as f64;
        let mut whole = OperationTime::default();
        for time in &times {
            whole.wall += time.wall;
            whole.shared += time.shared;
            whole.busy += time.busy;
        }
        times.sort_by_key(|operation| std::cmp::Reverse(operation.wall));
        let operation = |time: &OperationTime| OperationShares {
            operation: time.name.clone(),
            calls_per_step: time.calls as f64 / steps,
            ms_per_step: 1e3 * time.wall.as_secs_f64() / steps,
            share: time.wall.as_secs_f64() / whole.wall.as_secs_f64(),
            shares: Shares::of(time, threads),
            pieces: time.pieces as f64 / time.jobs.max(1) as f64,
        };
        let (phase, tokens, batch) = case;
        let case = ScalingCase {
            phase,
            tokens,
            batch,
            threads,
            tokens_per_second: count as f64 / whole.wall.as_secs_f64(),
            efficiency: 1.0,
            shares: Shares::of(&whole, threads),
            operations: times.iter().map(operation).collect(),
        };
        Ok((case, times, steps))
    }
}

impl Shares {
    fn of(time: &OperationTime, threads: usize) -> Self {
        let all = time.wall.as_secs_f64() * threads as f64;
        let share = |part: Duration| if all > 0.0 { part.as_secs_f64() / all } else { 0.0 };
        let threads = threads as u32;
        Self {
            compute: share(time.busy),
            waiting: share((time.shared * threads).saturating_sub(time.busy)),
            serial: share(time.serial() * threads),
        }
    }
}

impl SerialParts {
    /// By Amdahl's law: the time that threads share is divided by the cores, the rest is not.
    fn of(case: &ScalingCase, times: &[OperationTime], steps: f64) -> Self {
        let serial: Duration = times.iter().map(OperationTime::serial).sum();
        let busy: Duration = times.iter().map(|time| time.busy).sum();
        let share = |part: Duration, cores: usize| {
            part.as_secs_f64() / (serial.as_secs_f64() + busy.as_secs_f64() / cores as f64)
        };
        let part = |time: &OperationTime| SerialPart {
            operation: time.name.clone(),
            us_per_step: 1e6 * time.serial().as_secs_f64() / steps,
            shares: CORES.map(|cores| share(time.serial(), cores)),
        };
        let mut parts: Vec<_> = times.iter().map(part).collect();
        parts.sort_by(|a, b| b.us_per_step.total_cmp(&a.us_per_step));
        let ScalingCase { phase, tokens, batch, threads, .. } = *case;
        Self { phase, tokens, batch, threads, cores: CORES, parts }
    }
}

impl ScalingReport {
    /// The report as tables: rates, operations, serial parts.
    pub fn to_table(&self) -> String {
        let mut text = format!("{}, {}\n\n", self.model, self.isa);
        text += "phase    tokens batch threads     tok/s  efficiency compute waiting  serial\n";
        for case in &self.cases {
            let ScalingCase { phase, tokens, batch, threads, .. } = case;
            let _ = write!(text, "{phase:8}{tokens:>7}{batch:>6}{threads:>8}");
            let _ =
                write!(text, "{:>10.2}{}", case.tokens_per_second, percent(case.efficiency, 12));
            let _ = writeln!(text, "{}", case.shares.to_text());
        }
        self.cases.iter().for_each(|case| case.add_to(&mut text));
        self.serial.iter().for_each(|serial| serial.add_to(&mut text));
        text
    }
}

impl ScalingCase {
    fn add_to(&self, text: &mut String) {
        let Self { phase, tokens, batch, threads, .. } = self;
        let _ = writeln!(text, "\n{phase} {tokens}, batch {batch}, {threads} threads");
        *text += "operation                          calls ms/step   share compute waiting  serial \
                  pieces\n";
        for operation in &self.operations {
            let OperationShares { operation: name, calls_per_step: calls, ms_per_step, .. } =
                operation;
            let _ = write!(text, "{name:32}{calls:>8.1}{ms_per_step:>8.3}");
            let _ = write!(text, "{}{}", percent(operation.share, 8), operation.shares.to_text());
            let _ = writeln!(text, "{:>7.0}", operation.pieces);
        }
    }
}

impl SerialParts {
    fn add_to(&self, text: &mut String) {
        let Self { phase, tokens, batch, threads, cores, .. } = self;
        let _ = writeln!(
            text,
            "\nserial parts of {phase} {tokens}, batch {batch}, from {threads} threads, with their \
             shares of a step on more cores"
        );
        let _ = write!(text, "{:32}{:>10}", "operation", "us/step");
        cores.iter().for_each(|cores| *text += &format!("{cores:>8}"));
        text.push('\n');
        for SerialPart { operation, us_per_step, shares } in &self.parts {
            let _ = write!(text, "{operation:32}{us_per_step:>10.1}");
            shares.iter().for_each(|share| *text += &percent(*share, 8));
            text.push('\n');
        }
    }
}

impl Shares {
    fn to_text(&self) -> String {
        [self.compute, self.waiting, self.serial].map(|share| percent(share, 8)).concat()
    }
}

/// A share in percent, `width` characters wide.
fn percent(share: f64, width: usize) -> String {
    format!("{:>1$.1}%", 100.0 * share, width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(name: &str, [wall, shared, busy]: [u64; 3]) -> OperationTime {
        let [wall, shared, busy] = [wall, shared, busy].map(Duration::from_millis);
        OperationTime { name: name.into(), calls: 2, wall, shared, busy, jobs: 1, pieces: 8 }
    }

    fn check(found: [f64; 3], expected: [f64; 3]) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
    }

    #[test]
    fn shares_add_up_to_the_time_of_all_threads() {
        let Shares { compute, waiting, serial } = Shares::of(&time("a", [10, 8, 24]), 4);
        check([compute, waiting, serial], [0.6, 0.2, 0.2]);
    }

    #[test]
    fn serial_parts_are_what_more_cores_do_not_shorten() {
        let times = [time("alone", [1, 0, 0]), time("both", [66, 64, 64])];
        let case = ScalingCase {
            phase: "decode",
            tokens: 0,
            batch: 1,
            threads: 1,
            tokens_per_second: 1.0,
            efficiency: 1.0,
            shares: Shares::of(&times[0], 1),
            operations: Vec::new(),
        };
        let SerialParts { parts, .. } = SerialParts::of(&case, &times, 2.0);
        assert_eq!([&parts[0].operation, &parts[1].operation], ["both", "alone"]);
        check(parts[1].shares, [1.0 / 7.0, 1.0 / 4.0, 1.0 / 3.5]);
        check([parts[0].us_per_step, parts[1].us_per_step, 0.0], [1000.0, 500.0, 0.0]);
    }
}
