//! Sampling of the sequences of a step, on the threads that compute.
//!
//! What is chosen for a sequence depends on its logits and its own state alone, so that threads
//! decide no bits.

use crate::load::runner::Runner;
use crate::step::running_request::RunningRequest;
use crate::step::sampler::SamplerScratch;
use sched::{Planned, Scheduler, Slot};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes the logits of a step, with one thread for each sequence.
pub(crate) struct StepSampler {
    sequences: Vec<Mutex<SampledSequence>>,
    /// Rows of logits of `sequences`.
    rows: usize,
    /// The workspaces that no thread uses at present, at most one for each thread.
    scratches: Mutex<Vec<SamplerScratch>>,
}

/// A sequence whose logits are processed.
struct SampledSequence {
    planned: Planned,
    /// The first of its rows of logits.
    first_row: usize,
    running: RunningRequest,
}

impl StepSampler {
    /// A sampler for at most `running` sequences, which `threads` threads share.
    pub fn new(vocab_size: usize, running: usize, threads: usize) -> Self {
        let scratches = (0..threads.min(running)).map(|_| SamplerScratch::new(vocab_size));
        Self {
            sequences: Vec::with_capacity(running),
            rows: 0,
            scratches: Mutex::new(scratches.collect()),
        }
    }

    /// Adds a sequence, in the order of the plan.
    pub fn push(&mut self, planned: Planned, running: RunningRequest) {
        let first_row = self.rows;
        self.rows += planned.outputs + planned.drafts;
        self.sequences.push(Mutex::new(SampledSequence { planned, first_row, running }));
    }

    /// Processes the logits that `runner` has computed. `scheduler` holds the sequences as they
    /// were before the step.
    pub fn run(&self, runner: &Runner, scheduler: &Scheduler) {
        let (logits, vocab_size) = (runner.logits(), runner.info.vocab_size);
        runner.share_work(self.sequences.len(), &|at| {
            let mut sequence = lock(&self.sequences[at]);
            let SampledSequence { planned, first_row, running } = &mut *sequence;
            let rows = logits.chunks_exact(vocab_size).skip(*first_row);
            let rows = rows.take(planned.outputs + planned.drafts);
            let taken = lock(&self.scratches).pop();
            let mut scratch = taken.unwrap_or_else(|| SamplerScratch::new(vocab_size));
            running.process_logits(scheduler.sequence(planned.slot), planned, rows, &mut scratch);
            lock(&self.scratches).push(scratch);
        });
    }

    /// Takes the sequences out again.
    pub fn drain(&mut self) -> impl Iterator<Item = (Slot, RunningRequest)> {
        self.rows = 0;
        self.sequences.drain(..).map(|sequence| {
            let SampledSequence { planned, running, .. } =
                sequence.into_inner().unwrap_or_else(PoisonError::into_inner);
            (planned.slot, running)
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
