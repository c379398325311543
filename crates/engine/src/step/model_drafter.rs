//! Tokens that a second, smaller model drafts.
//!
//! The draft model has a cache and a scheduler of its own. A sequence that it drafts for has one
//! there with the same tokens, which generates as any other does: what the scheduler takes for
//! drafts are first the tokens that the model has chosen since, then tokens that are drafted now,
//! batch by batch; what it takes for sampled tokens is what the model has chosen. So the rows of
//! drafts that came out need not be computed again, and the rows of others are forgotten.
//!
//! States of recurrent layers forget nothing. A sequence has two: the first after the tokens that
//! its scheduler counts as known, the second after rows of drafts too. If all these drafts came
//! out, the next step continues from the second; else it continues from the first, and computes the
//! rows of the drafts that came out again.
//!
//! Where blocks run out, a sequence is dropped and has no more drafts.

use crate::load::block_root::{block_root, long_space};
use crate::load::draft_model::{MAX_GUESSES, MAX_LAG};
use crate::load::error::Error;
use crate::load::runner::Runner;
use crate::observe::drafter::MAX_DRAFTED;
use crate::step::depth_drafter::{Candidate, DepthDrafter};
use crate::step::prefill_budget::PrefillBudget;
use crate::step::running_request::RunningRequest;
use crate::step::sampler::SamplerScratch;
use crate::step::step_cost::StepCost;
use backend::{Batch, BlockCopy, StateRows};
use sched::{
    BlockCounts, NewSequence, Planned, Scheduler, SchedulerLimits, Slot, SlotTable, StateCopy, View,
};
use std::time::{Duration, Instant};

/// Tokens of a prompt that are computed for each that may follow: for a short answer, a long prompt
/// does not pay.
const MAX_PROMPT: usize = 16;
/// Part of the target of the time between tokens that prompts in the draft model may take.
const PROMPTS: u32 = 2;

/// Drafts tokens with a second model.
#[derive(Debug)]
pub(crate) struct ModelDrafter {
    runner: Runner,
    scheduler: Scheduler,
    /// By the slots of the model's scheduler.
    sequences: SlotTable<DraftSequence>,
    /// The slots of the model's scheduler, by those of the draft model's.
    targets: SlotTable<Slot>,
    /// Number of state slots of the scheduler, 0 without recurrent layers: each has a second one,
    /// numbered by so much more.
    states: u32,
    /// Prompt tokens of a batch.
    prompts: PrefillBudget,
    plan: Vec<Planned>,
    batch: Batch,
    /// The candidate of each row of the batch with logits.
    drawn: Vec<usize>,
    scratch: SamplerScratch,
    /// Logits of all words of the model, where the draft model has fewer or more.
    padded: Vec<f32>,
    pub candidates: Vec<Candidate>,
    /// Tokens that each lacks; `None` of one that was dropped.
    lacking: Vec<Option<usize>>,
    /// Rows of the first batch without prompts.
    first_rows: usize,
    /// Whether it is being tried and has given no token yet.
    is_on_trial: bool,
    pub cost: StepCost,
    /// Time taken in this step.
    pub took: Duration,
}

/// The sequence of the draft model for one of the model.
#[derive(Debug, Default)]
struct DraftSequence {
    /// `None` for one that was dropped.
    slot: Option<Slot>,
    /// What was computed in the last step and is not committed.
    planned: Option<Planned>,
    /// The tokens of its rows after the tokens that its scheduler knows.
    guesses: Vec<u32>,
    /// Rows of `guesses` of the last step that came out.
    right: usize,
}

impl ModelDrafter {
    /// A drafter for up to `running` sequences of a model of `vocab_size` words, which shall have a
    /// token in each time of `itl_target`.
    pub fn new(runner: Runner, running: usize, vocab_size: usize, itl_target: Duration) -> Self {
        let models::WorkspaceLimits { rows, logit_rows } = runner.limits;
        let states = runner.states / 2;
        let running = running.min(logit_rows).min(if states > 0 { states } else { usize::MAX });
        // Rows of drafts are not computed in one batch.
        let rows = rows + running * MAX_GUESSES;
        let limits = SchedulerLimits {
            running,
            rows,
            logits: rows,
            flights: 1,
            block: runner.block(),
            groups: runner.draft_groups().collect(),
            states,
            state_every: runner.state_every,
        };
        Self {
            scheduler: Scheduler::new(limits, block_root(&runner.settings, runner.block())),
            sequences: SlotTable::default(),
            targets: SlotTable::default(),
            states: states as u32,
            prompts: PrefillBudget::new(itl_target / PROMPTS, runner.chunk),
            plan: Vec::with_capacity(running),
            batch: runner.batch(),
            drawn: Vec::with_capacity(running),
            scratch: SamplerScratch::new(vocab_size),
            padded: vec![f32::MIN; vocab_size],
            candidates: Vec::with_capacity(running),
            lacking: Vec::with_capacity(running),
            first_rows: 0,
            is_on_trial: false,
            cost: StepCost::new(),
            took: Duration::ZERO,
            runner,
        }
    }

    /// Begins a step, with what the last one has given the sequences of `target`.
    pub fn begin(&mut self, target: &Scheduler) {
        self.candidates.clear();
        self.lacking.clear();
        (self.first_rows, self.took) = (0, Duration::ZERO);
        for slot in self.sequences.slots() {
            if target.is_preempted(slot) {
                self.end(slot);
            } else if let Some(sequence) = self.sequences.get_mut(slot) {
                sequence.settle(&mut self.scheduler, || target.sequence(slot).tokens);
            }
        }
    }

    /// Adds a sequence of the model, the `sequence`-th that decodes.
    pub fn add(&mut self, slot: Slot, sequence: usize, view: View<'_>) {
        self.candidates.push(Candidate { slot, sequence, chance: 1.0, row: 0, is_open: true });
        let all = view.tokens.len();
        let (known, computed, again) = match self.sequences.get(slot) {
            None => (all, Some(0), 0),
            Some(DraftSequence { slot: None, .. }) => (all, None, 0),
            Some(sequence @ &DraftSequence { slot: Some(own), .. }) => {
                let own = self.scheduler.sequence(own);
                let (known, in_prompt) = (own.tokens.len(), own.reached < own.prompt);
                let computed = Some(if in_prompt { own.reached } else { known });
                (known, computed, sequence.rows_again(own))
            }
        };
        self.lacking.push(computed.map(|computed| all - computed));
        self.first_rows += 1 + again + (all - known).min(MAX_LAG);
    }

    /// Releases the sequence for one of the model, if there is one.
    pub fn end(&mut self, slot: Slot) {
        let Some(sequence) = self.sequences.remove(slot) else { return };
        if let Some(planned) = sequence.planned {
            // The known rows stay in the cache.
            self.scheduler.commit(&planned, &[]);
        }
        if let Some(own) = sequence.slot {
            self.targets.remove(own);
            self.scheduler.finish(own);
        }
    }

    /// Releases a sequence, which has no drafts from now on.
    fn drop_sequence(&mut self, slot: Slot) {
        self.end(slot);
        self.sequences.insert(slot, DraftSequence::default());
    }

    /// The slot of the sequence with the tokens of `view`, which is added if there is none; `None`
    /// if it was dropped, or is no sequence of the draft model.
    fn own(&mut self, slot: Slot, space: [u8; 16], view: View<'_>) -> Option<Slot> {
        let known = match self.sequences.get(slot) {
            None => 0,
            Some(DraftSequence { slot: None, .. }) => return None,
            Some(&DraftSequence { slot: Some(own), .. }) => {
                self.scheduler.sequence(own).tokens.len()
            }
        };
        let most = self.scheduler.capacity().min(self.runner.info.context_length);
        let words = self.runner.info.vocab_size;
        let is_word = |token: &u32| (*token as usize) < words;
        // The last of those that it knows may not be computed yet.
        let unknown = &view.tokens[known.saturating_sub(1)..];
        if view.tokens.len() >= most || !unknown.iter().all(is_word) {
            self.drop_sequence(slot);
            return None;
        }
        if known == 0 || view.tokens.len() - known > MAX_LAG {
            if view.tokens.len() > MAX_PROMPT * (view.capacity - view.tokens.len()) {
                self.drop_sequence(slot);
                return None;
            }
            self.end(slot);
            self.start(slot, space, view.tokens, view.capacity.min(most));
        }
        self.sequences[slot].slot
    }

    /// Adds the sequence with these `tokens`.
    fn start(&mut self, slot: Slot, space: [u8; 16], tokens: &[u32], capacity: usize) {
        let is_long = self.runner.is_long(capacity);
        let own = self.scheduler.add(NewSequence {
            prompt: tokens.to_vec(),
            capacity,
            space: if is_long { long_space(space) } else { space },
            ..NewSequence::default()
        });
        self.targets.insert(own, slot);
        let guesses = Vec::with_capacity(MAX_GUESSES);
        let sequence = DraftSequence { slot: Some(own), guesses, ..DraftSequence::default() };
        self.sequences.insert(slot, sequence);
    }

    /// Plans the first batch: what the candidates lack, and rows for their drafts.
    fn plan(&mut self, target: &Scheduler, requests: &SlotTable<RunningRequest>) {
        for (own, _) in self.targets.iter() {
            self.scheduler.set_ready(own, false);
        }
        let mut left = self.runner.limits.rows.saturating_sub(self.candidates.len());
        for at in 0..self.candidates.len() {
            let slot = self.candidates[at].slot;
            let view = target.sequence(slot);
            let Some(own) = self.own(slot, requests[slot].draft.space(), view) else { continue };
            let known = self.scheduler.sequence(own);
            let again = self.sequences[slot].rows_again(known);
            if again > left {
                continue;
            }
            left -= again;
            let lag = view.tokens.len() - known.tokens.len();
            let certain = lag.min(left);
            left -= certain;
            let further = if certain == lag { MAX_DRAFTED - 1 } else { 0 };
            self.scheduler.set_ready(own, true);
            self.scheduler.offer_drafts(own, certain + further);
        }
        let prompt = self.prompts.prompt(self.candidates.len().max(1)).min(left);
        let before = self.scheduler.counters().0;
        self.scheduler.discard_uncommitted();
        self.scheduler.plan(prompt, &mut self.plan);
        if self.scheduler.counters().0 > before {
            for slot in self.sequences.slots() {
                let own = self.sequences.get(slot).and_then(|it| it.slot);
                if own.is_some_and(|own| self.scheduler.is_preempted(own)) {
                    self.drop_sequence(slot);
                }
            }
        }
    }

    /// Adds the planned rows to the batch. Returns the number of those of prompts.
    fn push_planned(&mut self, target: &Scheduler) -> usize {
        let Self { scheduler, runner, batch, sequences, drawn, .. } = self;
        for sched::BlockCopy { group, from, to } in scheduler.copies() {
            batch.copy(BlockCopy { group, from, to });
        }
        for StateCopy { from, to } in scheduler.state_copies() {
            batch.copy_state(from, to);
        }
        let mut prompt = 0;
        for planned in &self.plan {
            let sequence = &mut sequences[self.targets[planned.slot]];
            let slot = self.targets[planned.slot];
            let (own, tokens) = (scheduler.sequence(planned.slot), target.sequence(slot).tokens);
            let end = planned.position + planned.tokens;
            let later = &tokens[own.tokens.len()..];
            let certain = if planned.samples { later.len().min(planned.drafts) } else { 0 };
            let candidate = self.candidates.iter().position(|it| it.slot == slot);
            let candidate = candidate.filter(|_| planned.samples && certain == later.len());
            let first = planned.position - sequence.rows_again(own);
            let rows = [&own.tokens[first..end], &later[..certain]];
            batch.push(rows, first, usize::from(candidate.is_some()));
            batch.follow(&own.tokens[..first]);
            push_tables(batch, runner, own, end + certain);
            push_state(batch, (scheduler, planned), self.states, sequence.is_ahead());
            drawn.extend(candidate);
            sequence.guesses.clear();
            sequence.guesses.extend_from_slice(&later[..certain]);
            if planned.tokens > 1 || !planned.samples {
                prompt += planned.tokens;
            }
        }
        prompt
    }

    /// Adds the row of the last drafted token of each candidate to the batch.
    fn push_drafted(&mut self, requests: &SlotTable<RunningRequest>) {
        let Self { scheduler, runner, batch, sequences, drawn, .. } = self;
        for (at, candidate) in self.candidates.iter().enumerate() {
            let sequence = &mut sequences[candidate.slot];
            let (Some(slot), Some(token)) =
                (sequence.slot, requests[candidate.slot].draft.tokens().last())
            else {
                continue;
            };
            let own = scheduler.sequence(slot);
            let position = own.tokens.len() + sequence.guesses.len();
            sequence.guesses.push(*token);
            batch.push([&[*token], &[]], position, 1);
            follow(batch, own.tokens, &sequence.guesses);
            push_tables(batch, runner, own, position + 1);
            if let Some(state) = own.state {
                batch.state(StateRows { slot: state + self.states, right: 0, guesses: 0 });
            }
            drawn.push(at);
        }
    }

    /// Draws a token from each row of logits.
    fn draw(&mut self, target: &Scheduler, requests: &mut SlotTable<RunningRequest>) {
        let words = self.runner.info.vocab_size;
        let common = words.min(self.padded.len());
        self.candidates.iter_mut().for_each(|candidate| candidate.is_open = false);
        for (logits, &at) in self.runner.logits().chunks_exact(words).zip(&self.drawn) {
            let candidate = &mut self.candidates[at];
            let (slot, sequence) = (candidate.slot, &self.sequences[candidate.slot]);
            self.padded[..common].copy_from_slice(&logits[..common]);
            let has_rows = sequence.planned.is_some_and(|it| sequence.guesses.len() < it.drafts);
            let (view, running) = (target.sequence(slot), &mut requests[slot]);
            candidate.is_open =
                running.draw_draft(view, &self.padded, &mut self.scratch) && has_rows;
        }
    }

    /// Notes the planned rows as computed.
    fn note_planned(&mut self) {
        for planned in &self.plan {
            if planned.samples {
                let slot = self.targets[planned.slot];
                self.sequences[slot].planned = Some(*planned);
            } else {
                self.scheduler.commit(planned, &[]);
            }
        }
    }

    /// Computes a batch of so many rows of no sequence, to know what it costs. No sequence may have
    /// been computed yet.
    pub fn measure(&mut self, rows: usize) {
        let mut sequence = self.runner.sequences(1).remove(0);
        if rows > sequence.most_rows().min(self.runner.limits.rows) {
            return;
        }
        self.batch.clear();
        sequence.push_with(&mut self.batch, [&[0], &vec![0; rows - 1]], 0, (0, 1));
        let begun = Instant::now();
        let done = self.runner.forward_unrecorded(&self.batch);
        if done.is_ok() && !self.runner.take_prepared() {
            self.cost.measure(rows, begun.elapsed());
        }
    }

    /// As [`Runner::prepare_weights`].
    pub fn prepare_weights(&mut self) -> bool {
        let has_more = self.runner.prepare_weights();
        self.runner.take_prepared();
        has_more
    }

    /// The blocks of its cache that hold all positions, by state.
    pub fn blocks(&self) -> BlockCounts {
        self.scheduler.blocks(0)
    }
}

impl DraftSequence {
    /// Whether its second state is that after all computed tokens: all drafts came out.
    fn is_ahead(&self) -> bool {
        self.right > 0 && self.right == self.guesses.len()
    }

    /// Computed rows that are computed again in the next step, if there is a state.
    fn rows_again(&self, own: View<'_>) -> usize {
        if own.state.is_none() || self.is_ahead() { 0 } else { self.right }
    }

    /// Commits what was computed in the last step, if the sequence has more `tokens` since.
    fn settle<'a>(&mut self, scheduler: &mut Scheduler, tokens: impl FnOnce() -> &'a [u32]) {
        let (Some(slot), Some(planned)) = (self.slot, self.planned.take()) else { return };
        self.right = 0;
        let own = scheduler.sequence(slot);
        let later = &tokens()[own.tokens.len()..];
        let pairs = self.guesses.iter().zip(later);
        let right = pairs.take_while(|(guess, token)| guess == token).count();
        let sampled = later.len().min(right + 1).min(own.capacity - own.tokens.len());
        // Otherwise the same rows are planned again.
        if sampled > 0 {
            scheduler.commit(&planned, &later[..sampled]);
            self.right = sampled - 1;
        }
    }
}

impl DepthDrafter for ModelDrafter {
    fn name(&self) -> &'static str {
        "the draft model"
    }

    fn candidates(&mut self) -> &mut Vec<Candidate> {
        &mut self.candidates
    }

    fn cost(&self) -> &StepCost {
        &self.cost
    }

    fn rows(&self, depth: usize) -> usize {
        if depth == 0 { self.first_rows } else { self.candidates.len() }
    }

    fn most(&self, _: &Runner) -> usize {
        MAX_DRAFTED
    }

    /// One sequence is enough to find out: that which lacks fewest tokens.
    fn begin_trial(&mut self) {
        self.is_on_trial = true;
        let both = self.candidates.iter().copied().zip(&self.lacking);
        let some = both.filter_map(|(candidate, lacks)| Some((candidate, (*lacks)?)));
        let least = some.min_by_key(|(_, lacks)| *lacks);
        self.candidates.clear();
        self.candidates.extend(least.map(|(candidate, _)| candidate));
    }

    fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    fn draft(
        &mut self,
        _: &mut Runner,
        scheduler: &Scheduler,
        requests: &mut SlotTable<RunningRequest>,
        depth: usize,
    ) -> Result<(), Error> {
        let start = Instant::now();
        self.batch.clear();
        self.drawn.clear();
        let prompt = if depth == 0 {
            self.plan(scheduler, requests);
            self.push_planned(scheduler)
        } else {
            self.push_drafted(requests);
            0
        };
        let rows = self.batch.rows();
        if rows > 0 {
            self.runner.forward_unrecorded(&self.batch)?;
        }
        if depth == 0 {
            self.note_planned();
            self.is_on_trial &= rows > 0 && self.drawn.is_empty();
        }
        self.draw(scheduler, requests);
        let took = start.elapsed();
        self.took += took;
        if rows > 0 && !self.runner.take_prepared() {
            self.prompts.observe(rows, prompt, took);
            if prompt == 0 {
                self.cost.observe(rows, took);
            }
        }
        Ok(())
    }
}

/// Adds the block tables of a sequence for its first `positions`.
fn push_tables(batch: &mut Batch, runner: &Runner, own: View<'_>, positions: usize) {
    if runner.is_long(own.capacity) {
        batch.mark_long();
    }
    let blocks = positions.div_ceil(runner.block());
    own.tables.iter().for_each(|table| batch.table(&table[..blocks]));
}

/// Sets the state of a sequence with the planned rows, if it has one: `states` after its slot is
/// the second, which rows of drafts change and which may be ahead.
fn push_state(
    batch: &mut Batch,
    (scheduler, planned): (&Scheduler, &Planned),
    states: u32,
    is_ahead: bool,
) {
    let Some(state) = scheduler.sequence(planned.slot).state else { return };
    let slot = if planned.samples { state + states } else { state };
    if planned.samples && !is_ahead {
        batch.copy_state(state, slot);
    }
    batch.state(StateRows { slot, right: 0, guesses: 0 });
    let saves = scheduler.saves(planned);
    saves.for_each(|save| batch.save(save.position, save.state));
    if planned.samples {
        batch.save(planned.position + planned.tokens - 1, state);
    }
}

/// Sets the tokens before the row of the last of the `guesses` after `known` tokens.
fn follow(batch: &mut Batch, known: &[u32], guesses: &[u32]) {
    let before = &guesses[..guesses.len() - 1];
    let kept = Batch::MAX_BEFORE.saturating_sub(before.len()).min(known.len());
    batch.follow(&[&known[known.len() - kept..], before].concat());
}
