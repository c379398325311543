//! The part of a request whose sequence is led by its caller.

use crate::observe::outcome::Outcome;
use crate::request::led_turn::{LedBeginning, LedId};
use sched::PromptOutput;
use std::time::{Duration, Instant};

/// What the caller of a led sequence wants, and how long it has not come back.
#[derive(Debug)]
pub(crate) struct LedState {
    pub id: LedId,
    /// Which rows of the last push need outputs.
    pub output: PromptOutput,
    /// Time after which the sequence ends while it waits.
    idle: Duration,
    /// Since when it waits.
    since: Option<Instant>,
}

impl LedState {
    pub fn new(beginning: &LedBeginning) -> Self {
        let LedBeginning { id, output, idle, .. } = *beginning;
        Self { id, output, idle, since: None }
    }

    /// Waits for the caller.
    pub fn wait(&mut self) {
        self.since = Some(Instant::now());
    }

    /// Continues with a push.
    pub fn resume(&mut self, output: PromptOutput) {
        (self.output, self.since) = (output, None);
    }

    /// The outcome of a sequence whose caller has not come back. The engine looks before it
    /// computes anything, so that a push that comes late is an error; while the engine has nothing
    /// to compute, nothing is gained by an end in time.
    pub fn expired(&self) -> Option<Outcome> {
        let since = self.since?;
        (since.elapsed() >= self.idle).then_some(Outcome::TimedOut(self.idle))
    }
}
