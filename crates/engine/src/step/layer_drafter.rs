//! Tokens that layers draft from the states of the model.
//!
//! One batch after the other gives each sequence that still pays one token more. The row of a
//! drafted token is written where the sequence will write its own next row, or into a spare block
//! where it has no block there yet: the next step writes the rows of all its tokens again, from the
//! model's own states.

use crate::load::error::Error;
use crate::load::runner::Runner;
use crate::observe::drafter::{Drafter, MAX_DRAFTED};
use crate::step::depth_drafter::{Candidate, DepthDrafter};
use crate::step::draft::most_likely;
use crate::step::running_request::RunningRequest;
use crate::step::step_cost::StepCost;
use backend::Batch;
use models::DraftStates;
use sched::{Scheduler, Slot, SlotTable};
use std::time::{Duration, Instant};

/// Drafts tokens with the layers of a model.
#[derive(Debug)]
pub(crate) struct LayerDrafter {
    drafter: Drafter,
    batch: Batch,
    /// States of the rows of the batch before, and of the next: `[rows, width]`.
    states: Vec<f32>,
    next: Vec<f32>,
    table: Vec<u32>,
    /// The sequences of the next batch.
    pub candidates: Vec<Candidate>,
    /// Seconds of a batch by its number of rows.
    pub cost: StepCost,
    /// Time taken in this step.
    pub took: Duration,
}

impl LayerDrafter {
    /// A drafter for the model of `runner`, if it has layers for that.
    pub fn new(runner: &Runner, running: usize) -> Option<Self> {
        let width = running * runner.state_width();
        runner.drafter.map(|drafter| Self {
            drafter,
            batch: runner.batch(),
            states: Vec::with_capacity(width),
            next: Vec::with_capacity(width),
            table: Vec::with_capacity(runner.groups[0].blocks + 1),
            candidates: Vec::with_capacity(running),
            cost: StepCost::new(),
            took: Duration::ZERO,
        })
    }

    /// Begins a step.
    pub fn begin(&mut self) {
        self.candidates.clear();
        self.took = Duration::ZERO;
    }

    /// Adds a sequence, the `sequence`-th that decodes.
    pub fn add(&mut self, slot: Slot, sequence: usize) {
        self.candidates.push(Candidate { slot, sequence, chance: 1.0, row: 0, is_open: true });
    }

    /// Adds the row of the last of a sequence's known and drafted tokens to the batch.
    fn push(&mut self, runner: &Runner, scheduler: &Scheduler, slot: Slot, drafted: &[u32]) {
        let (view, number) = (scheduler.sequence(slot), self.batch.rows());
        let known = view.tokens.len();
        let token = drafted.last().unwrap_or(&view.tokens[known - 1]);
        let position = known - 1 + if self.drafter.stays() { 0 } else { drafted.len() };
        self.batch.push([&[*token], &[]], position, 1);
        if runner.is_long(view.capacity) {
            self.batch.mark_long();
        }
        let needed = position / runner.block() + 1;
        for (group, table) in runner.groups.iter().zip(view.tables) {
            self.table.clear();
            self.table.extend_from_slice(&table[..needed.min(table.len())]);
            let spare = group.blocks + number % runner.spare_blocks;
            self.table.resize(needed, spare as u32);
            self.batch.table(&self.table);
        }
    }
}

impl DepthDrafter for LayerDrafter {
    fn name(&self) -> &'static str {
        "layers of the model"
    }

    fn candidates(&mut self) -> &mut Vec<Candidate> {
        &mut self.candidates
    }

    fn cost(&self) -> &StepCost {
        &self.cost
    }

    fn rows(&self, _: usize) -> usize {
        self.candidates.len()
    }

    /// Where each layer drafts one, a further token would need the rows of drafted tokens in the
    /// layers before.
    fn most(&self, runner: &Runner) -> usize {
        if runner.draft_layers() == 1 { MAX_DRAFTED } else { 1 }
    }

    fn draft(
        &mut self,
        runner: &mut Runner,
        scheduler: &Scheduler,
        requests: &mut SlotTable<RunningRequest>,
        depth: usize,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let width = runner.state_width();
        self.batch.clear();
        self.next.clear();
        for at in 0..self.candidates.len() {
            let Candidate { slot, row, .. } = self.candidates[at];
            self.push(runner, scheduler, slot, requests[slot].draft.tokens());
            match depth {
                // The state is in the cache; that of the row itself is not known yet.
                0 => self.next.resize(self.next.len() + width, 0.0),
                _ => self.next.extend_from_slice(&self.states[row * width..][..width]),
            }
        }
        let states = match depth {
            0 => DraftStates::Own(&self.next),
            _ => DraftStates::Before(&self.next),
        };
        let drafted = runner.draft(&self.batch, 0, states)?;
        self.states.clear();
        self.states.extend_from_slice(drafted.states);
        let words = drafted.logits.len() / self.candidates.len();
        let logits = drafted.logits.chunks_exact(words).enumerate();
        for (candidate, (row, logits)) in self.candidates.iter_mut().zip(logits) {
            let (word, probability) = most_likely(logits);
            let token = drafted.words.map_or(word as u32, |words| words[word]);
            candidate.row = row;
            let draft = (self.drafter, token, probability);
            candidate.is_open = requests[candidate.slot].add_draft(draft);
        }
        let took = start.elapsed();
        self.cost.observe(self.batch.rows(), took);
        self.took += took;
        Ok(())
    }
}
