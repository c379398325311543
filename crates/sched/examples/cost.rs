//! What the scheduler and the prefix cache cost: `cargo run --release -p gannet-sched --example
//! cost`.
//!
//! The time of adding, planning and committing a prompt of 4096 tokens in chunks of 512, new to the
//! cache and found in it, and of a step in which 256 sequences decode: of a model with one group of
//! rows, and of one with two windows and states besides. Last the time of finding where a prompt of
//! a million tokens can continue whose windowed rows are lost.

use base::Name;
use sched::{Group, NewSequence, Planned, Scheduler, SchedulerLimits, Slot};
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

const PROMPT: usize = 4096;
const CHUNK: usize = 512;
const RUNS: usize = 101;
const DECODES: usize = 256;

struct Bench {
    scheduler: Scheduler,
    plan: Vec<Planned>,
}

impl Bench {
    fn new(windows: &[usize], states: usize) -> Self {
        let (running, rows, logits) = (DECODES, CHUNK, DECODES);
        let mut groups = vec![Group { window: None, blocks: 60_000 }];
        let windowed = |&window| Group { window: Some(window), blocks: 3000 };
        groups.extend(windows.iter().map(windowed));
        let (block, state_every) = (32, 2048);
        let limits = SchedulerLimits {
            running,
            rows,
            logits,
            flights: 1,
            block,
            groups,
            states,
            state_every,
        };
        Self { scheduler: Scheduler::new(limits, Name::root(b"cost")), plan: Vec::new() }
    }

    fn add(&mut self, tokens: impl Iterator<Item = u32>) -> Slot {
        let prompt: Vec<u32> = tokens.collect();
        let capacity = prompt.len() + 1000;
        self.scheduler.add(NewSequence { prompt, capacity, ..NewSequence::default() })
    }

    fn step(&mut self) {
        self.scheduler.plan(CHUNK, &mut self.plan);
        for planned in &self.plan {
            self.scheduler.commit(black_box(planned), if planned.samples { &[7] } else { &[] });
        }
    }

    /// A whole prompt, up to its first token.
    fn prompt(&mut self, seed: u32) -> Duration {
        let start = Instant::now();
        let slot = self.add((0..PROMPT as u32).map(|i| i * 7 + seed));
        while self.scheduler.sequence(slot).tokens.len() == PROMPT {
            self.step();
        }
        self.scheduler.finish(slot);
        start.elapsed()
    }
}

fn median(mut run: impl FnMut(usize) -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS).map(&mut run).collect();
    times.sort_unstable();
    times[RUNS / 2]
}

/// The time of a step in which a prompt of a million tokens is admitted that was computed before,
/// and whose windowed rows have given way to others.
fn lost() -> Duration {
    const MILLION: usize = 1_000_000;
    let mut bench = Bench::new(&[128, 8], 0);
    let tokens = |end| (0..MILLION as u32).map(move |i| if i < end { i } else { i + 1 });
    let compute = |bench: &mut Bench, slot| {
        while bench.scheduler.sequence(slot).tokens.len() == MILLION {
            bench.step();
        }
        bench.scheduler.finish(slot);
    };
    let first = bench.add(tokens(MILLION as u32));
    compute(&mut bench, first);
    let second = bench.add(tokens(900_000));
    let start = Instant::now();
    bench.step();
    let took = start.elapsed();
    let lookup = bench.scheduler.sequence(second).lookup.expect("the sequence was admitted");
    assert!(lookup.unreached.rows > 0, "rows are lost");
    took
}

fn measure(out: &mut impl Write, windows: &[usize], states: usize) -> std::io::Result<()> {
    let mut bench = Bench::new(windows, states);
    let cold = median(|run| bench.prompt(100_000 * run as u32));
    let warm = median(|_| bench.prompt(0));
    writeln!(out, "windows {windows:?}, {states} states")?;
    writeln!(out, "prompt of {PROMPT} tokens, new:    {cold:?}")?;
    writeln!(out, "prompt of {PROMPT} tokens, cached: {warm:?}")?;
    for seed in 0..DECODES as u32 {
        bench.add((0..300).map(|i| i * 13 + 1_000_000 * seed));
    }
    (0..400).for_each(|_| bench.step());
    let decode = median(|_| {
        let start = Instant::now();
        bench.step();
        start.elapsed()
    });
    writeln!(out, "step of {} sequences:        {decode:?}", bench.plan.len())
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    measure(&mut out, &[], 0)?;
    measure(&mut out, &[128, 8], 2 * DECODES)?;
    writeln!(out, "prompt of a million tokens, windowed rows lost: {:?}", lost())
}
