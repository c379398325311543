//! Tokens that layers draft from the states of the model.
//!
//! One batch after the other gives each sequence that still pays one token more: a single layer
//! from the state that it gave the row before, further layers each from the states of the layer
//! before, for the rows of all drafted tokens so far. The row of a drafted token is written where
//! the sequence will write its own next row, or into a spare block where it has no block there yet:
//! the next step writes the rows of all its tokens again, from the model's own states.

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
    pub drafter: Drafter,
    /// Number of layers.
    layers: usize,
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
        let rows = running * runner.draft_layers();
        let width = rows * runner.state_width();
        runner.drafter.map(|drafter| Self {
            drafter,
            layers: runner.draft_layers(),
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

    /// Whether each token is drafted by a layer of its own.
    fn has_further(&self) -> bool {
        self.layers > 1
    }

    /// Rows of a sequence in the batch that gives the token at `depth`.
    fn rows_each(&self, depth: usize) -> usize {
        if self.has_further() { depth + 1 } else { 1 }
    }

    /// Whether the first row of a sequence at `depth` is computed from a state in the cache, as the
    /// layer has drafted none of its tokens yet.
    fn begins_in_cache(&self, depth: usize) -> bool {
        self.has_further() || depth == 0
    }

    /// Adds the rows of the candidate `at`, which has these `drafted` tokens, to the batch: that of
    /// the last of its tokens, with further layers all from the last known one on.
    fn push(&mut self, runner: &Runner, scheduler: &Scheduler, at: usize, drafted: &[u32]) {
        let view = scheduler.sequence(self.candidates[at].slot);
        let known = view.tokens.len();
        let last = &view.tokens[known - 1..];
        let (tokens, position) = match drafted {
            _ if self.has_further() => ([last, drafted], known - 1),
            [.., token] => {
                let ahead = if self.drafter.stays() { 0 } else { drafted.len() };
                ([std::slice::from_ref(token), &[]], known - 1 + ahead)
            }
            [] => ([last, &[]], known - 1),
        };
        self.batch.push(tokens, position, 1);
        if runner.is_long(view.capacity) {
            self.batch.mark_long();
        }
        let end = position + tokens.iter().map(|part| part.len()).sum::<usize>();
        let needed = end.div_ceil(runner.block());
        for (group, table) in runner.groups.iter().zip(view.tables) {
            self.table.clear();
            self.table.extend_from_slice(&table[..needed.min(table.len())]);
            let spare = group.blocks + at % runner.spare_blocks;
            self.table.resize(needed, spare as u32);
            self.batch.table(&self.table);
        }
    }

    /// Adds what the rows of a candidate are computed from, whose first row in the batch before is
    /// `row`, at this `depth`.
    fn push_states(&mut self, width: usize, row: usize, depth: usize) {
        let given = depth.checked_sub(1).map_or(0, |before| self.rows_each(before));
        self.next.extend_from_slice(&self.states[row * width..][..given * width]);
        if self.begins_in_cache(depth) {
            // The state of the last row is not known yet, nor read.
            self.next.resize(self.next.len() + width, 0.0);
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

    fn rows(&self, depth: usize) -> usize {
        self.candidates.len() * self.rows_each(depth)
    }

    fn most(&self, runner: &Runner) -> usize {
        if !self.has_further() {
            return MAX_DRAFTED;
        }
        self.layers.min(runner.limits.rows / self.candidates.len().max(1)).min(MAX_DRAFTED)
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
            self.candidates[at].row = self.batch.rows();
            self.push(runner, scheduler, at, requests[slot].draft.tokens());
            self.push_states(width, row, depth);
        }
        let layer = if self.has_further() { depth } else { 0 };
        let states = match self.begins_in_cache(depth) {
            true => DraftStates::Own(&self.next),
            false => DraftStates::Before(&self.next),
        };
        let drafted = runner.draft(&self.batch, layer, states)?;
        self.states.clear();
        self.states.extend_from_slice(drafted.states);
        let words = drafted.logits.len() / self.candidates.len();
        for (candidate, logits) in
            self.candidates.iter_mut().zip(drafted.logits.chunks_exact(words))
        {
            let (word, probability) = most_likely(logits);
            let token = drafted.words.map_or(word as u32, |words| words[word]);
            let draft = (self.drafter, token, probability);
            candidate.is_open = requests[candidate.slot].add_draft(draft);
        }
        let took = start.elapsed();
        self.cost.observe(self.batch.rows(), took);
        self.took += took;
        Ok(())
    }
}
