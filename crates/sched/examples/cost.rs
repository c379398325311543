//! What the scheduler and the prefix cache cost: `cargo run --release -p gannet-sched --example
//! cost`.
//!
//! The time of adding, planning and committing a prompt of 4096 tokens in chunks of 512, new to the
//! cache and found in it, and of a step in which 256 sequences decode.

use sched::{Group, Name, NewSequence, Planned, Scheduler, SchedulerLimits, Slot};
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
    fn new() -> Self {
        let (running, rows, logits) = (DECODES, CHUNK, DECODES);
        let groups = vec![Group { window: None, blocks: 60_000 }];
        let (block, states, state_every) = (32, 0, 0);
        let limits = SchedulerLimits { running, rows, logits, block, groups, states, state_every };
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

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let mut bench = Bench::new();
    let cold = median(|run| bench.prompt(100_000 * run as u32));
    let warm = median(|_| bench.prompt(0));
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
