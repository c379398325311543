//! A request that waits or runs: everything but the state of its sequence, which the scheduler
//! holds under the same slot.

mod clock;
mod led;
mod output;
mod reader;

use crate::load::block_root::adapted_space;
use crate::load::error::Error;
use crate::observe::drafter::Drafter;
use crate::observe::metrics::{Lookup, Metrics};
use crate::observe::outcome::Outcome;
use crate::request::constraint::Allowed;
use crate::request::constraint::TokenSet;
use crate::request::fields::{Event, Finished, Request, TokenLogprobs, Usage};
use crate::request::handle::Submission;
use crate::request::led_turn::{LedBeginning, LedId};
use crate::step::choice_recorder::ChoiceRecorder;
use crate::step::draft::{Acceptance, DraftMemory, DraftSources, RequestDraft, probability};
use crate::step::embedding_pooler::EmbeddingPooler;
use crate::step::masks::{ConstraintState, SequenceConstraint, TokenMask};
use crate::step::sampler::{History, Sampler, SamplerScratch, logprobs};
use crate::step::trace::{Recorder, TraceSink};
use backend::AdapterSet;
use base::Rng;
use clock::RequestClock;
use led::LedState;
use output::StepOutput;
use reader::ReaderChannel;
use sched::{Planned, PromptOutput, View};
use std::time::{Duration, Instant};

/// What the engine adds to a submitted request.
#[derive(Debug)]
pub(crate) struct RequestSetup {
    /// What its tokens are drafted from.
    pub drafts: DraftSources,
    /// Maximum time from submission to the end.
    pub timeout: Option<Duration>,
    pub constraint: SequenceConstraint,
    /// Present if the request is for one vector.
    pub pooler: Option<EmbeddingPooler>,
    /// Present if traces are written.
    pub recorder: Option<Recorder>,
    /// Present if the caller leads the sequence.
    pub led: Option<LedBeginning>,
}

/// A submitted request: its parameters, its sampling state and its reader.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    request: Request,
    adapters: AdapterSet,
    adapter_key: [u8; 16],
    sampler: Sampler,
    /// The random numbers of the tokens that a model drafts next.
    ahead: Rng,
    pub constraint: SequenceConstraint,
    output: StepOutput,
    clock: RequestClock,
    reader: ReaderChannel,
    pub draft: RequestDraft,
    /// Maximum number of drafts per step.
    max_drafted: usize,
    pub recorder: Option<Box<Recorder>>,
    /// Present if the logits of choices are recorded, for a trace or for whoever submitted the
    /// request.
    choices: Option<ChoiceRecorder>,
    /// Present if the caller leads the sequence.
    led: Option<LedState>,
}

impl RunningRequest {
    /// A request that waits. The prompt of `submission` is not used.
    pub fn new(submission: Submission, setup: RequestSetup) -> Self {
        let Submission { mut request, events, submitted, queue_slot, .. } = submission;
        let adapters = request.adapters.take().unwrap_or_default();
        let RequestSetup { drafts, timeout, constraint, pooler, recorder, led } = setup;
        let (max_drafted, sampler) = (drafts.max(), Sampler::new(request.sampling.clone()));
        let record =
            request.record.take().or_else(|| recorder.as_ref().map(|_| Default::default()));
        let choices = record.map(ChoiceRecorder::new);
        Self {
            draft: RequestDraft::new(drafts),
            max_drafted,
            adapter_key: adapted_space([0; 16], &adapters),
            adapters,
            ahead: sampler.rng(),
            sampler,
            constraint,
            output: StepOutput::new(max_drafted, pooler),
            clock: RequestClock::new(submitted, timeout),
            reader: ReaderChannel { events, queue_slot },
            recorder: recorder.map(Box::new),
            choices,
            led: led.as_ref().map(LedState::new),
            request,
        }
    }

    /// The adapters that it is computed with.
    pub fn adapters(&self) -> &AdapterSet {
        &self.adapters
    }

    /// A number that stands for its adapters.
    pub fn adapter_key(&self) -> [u8; 16] {
        self.adapter_key
    }

    /// The rows of the prompt that need outputs.
    pub fn prompt_output(&self) -> PromptOutput {
        if let Some(led) = &self.led {
            return led.output;
        }
        match &self.output.pooler {
            Some(pooler) if pooler.wants_all() => PromptOutput::HiddenStates,
            None if self.request.prompt_logprobs.is_some() || self.request.logits => {
                PromptOutput::AllLogits
            }
            _ => PromptOutput::LastLogits,
        }
    }

    /// Types of the tokens of the prompt; empty where all are 0.
    pub fn types(&self) -> &[u32] {
        &self.request.types
    }

    /// Whether the request needs hidden states instead of logits.
    pub fn wants_hidden(&self) -> bool {
        self.output.pooler.is_some() || self.prompt_output() == PromptOutput::HiddenStates
    }

    /// The name of a sequence that its caller leads.
    pub fn led_id(&self) -> Option<LedId> {
        self.led.as_ref().map(|led| led.id)
    }

    /// Continues a led sequence with a push whose rows need these outputs.
    pub fn resume(&mut self, output: PromptOutput) {
        if let Some(led) = &mut self.led {
            led.resume(output);
        }
    }

    /// Whether what it computes may be stored on disk: not for a single vector, nor for a request
    /// that computes everything itself, nor of a led sequence, which may be shortened.
    pub fn is_stored(&self) -> bool {
        !self.wants_hidden() && !self.request.cold && self.led.is_none()
    }

    /// Whether the events of a step fit into the reader's channel.
    pub fn is_ready(&self) -> bool {
        self.reader.has_room(self.max_drafted)
    }

    /// Why the request ends from outside, if it does.
    pub fn abort_reason(&self) -> Option<Outcome> {
        let idle = || self.led.as_ref().and_then(LedState::expired);
        self.reader.gone().or_else(|| self.clock.expired()).or_else(idle)
    }

    /// Reports the first admission of the sequence.
    pub fn admit(&mut self, sequence: View<'_>, metrics: &Metrics) {
        let Some(queued) = self.clock.admit() else { return };
        let lookup = sequence.lookup.unwrap_or_default();
        self.reader.queue_slot = None;
        let sched::Unreached { rows, state } = lookup.unreached;
        let counts = Lookup {
            queried: sequence.prompt,
            found: lookup.found,
            without_rows: rows,
            without_state: state,
        };
        metrics.admitted(queued, counts);
        if let Some(recorder) = &mut self.recorder {
            recorder.trace.cached_tokens = lookup.found;
        }
        self.reader.send(Event::Admitted { lookup, queued_s: queued.as_secs_f64() });
    }

    /// Drafts the next tokens of its `sequence`, as far as its constraint allows them.
    pub fn find_draft(&mut self, sequence: View<'_>, memory: &mut DraftMemory) {
        let Self { draft, constraint, max_drafted, .. } = self;
        let constraint = constraint.state();
        let forced = constraint.as_ref().map_or(&[][..], |constraint| constraint.forced());
        let left = sequence.capacity - sequence.tokens.len();
        // The last token of a sequence is sampled from a row of its own.
        let most = left.saturating_sub(1).min(*max_drafted);
        draft.find((sequence.tokens, sequence.prompt), forced, most, memory);
        if let Some(constraint) = constraint {
            let allowed = constraint.allowed_prefix(draft.tokens());
            draft.truncate(allowed);
        }
    }

    /// Adds a token that a drafter has computed, with its probability. Returns whether a further
    /// one may follow.
    pub fn add_draft(&mut self, (drafter, token, probability): (Drafter, u32, f32)) -> bool {
        self.draft.add(drafter, token, probability);
        let Some(constraint) = self.constraint.state() else { return self.draft.may_add() };
        let allowed = constraint.allowed_prefix(self.draft.tokens());
        let is_allowed = allowed == self.draft.tokens().len();
        self.draft.truncate(allowed);
        is_allowed && self.draft.may_add()
    }

    /// Drafts the token that would be chosen if `logits` were the model's: with the same random
    /// number, after the tokens drafted so far, of what the constraint allows. Returns whether a
    /// further one may follow.
    pub fn draw_draft(
        &mut self,
        sequence: View<'_>,
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> bool {
        let Some(id) = self.choose_ahead(sequence, logits, scratch) else { return false };
        self.draft.add(Drafter::Model, id, probability(logits, id));
        self.draft.may_add()
    }

    /// The choice after the drafted tokens; `None` if none can be made, or the sequence would end.
    fn choose_ahead(
        &mut self,
        View { tokens, prompt, .. }: View<'_>,
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> Option<u32> {
        let Self { request, draft, constraint, sampler, ahead, .. } = self;
        let (fresh, stop_ids) = (draft.tokens(), &request.stop_ids[..]);
        let early = tokens.len() - prompt + fresh.len() < request.min_tokens;
        let (allowed, greedy) = match constraint.state() {
            Some(constraint) => allowed(constraint.mask_after(fresh)?, stop_ids, early).ok()?,
            None => (None, false),
        };
        if fresh.is_empty() {
            *ahead = sampler.rng();
        }
        let banned = if early { stop_ids } else { &[] };
        let history = History { tokens, fresh, prompt, banned, allowed, greedy };
        let chosen = sampler.sample_ahead(ahead, logits, history, scratch).ok()?;
        Some(chosen).filter(|id| !stop_ids.contains(id))
    }

    /// Compares its draft with the tokens of the step.
    pub fn learn_from_draft(&mut self, all: &mut Acceptance) {
        self.draft.learn(&self.output.ids, all);
    }

    /// Starts the masks of a step. Returns the constraint if the mask thread is to compute them.
    pub fn lend_constraint(&mut self, planned: &Planned) -> Option<Box<ConstraintState>> {
        self.constraint.lend(self.draft.planned(planned))
    }

    /// Has the constraint forget the drafts of a step that failed and is repeated. Returns the
    /// outcome if that fails too.
    pub fn discard_draft(&mut self) -> Option<Outcome> {
        self.constraint.state()?.accept(&[]).err().map(Outcome::Failed)
    }

    /// Adds the hidden states of a step.
    pub fn add_hidden<'a>(&mut self, planned: &Planned, states: impl Iterator<Item = &'a [f32]>) {
        let Some(pooler) = &mut self.output.pooler else {
            return self.keep_rows(planned, states);
        };
        pooler.add(states);
        self.output.clear();
        if planned.samples {
            self.output.end(Outcome::Complete);
        }
    }

    /// Processes the logits of a step: of prompt tokens, where requested, then of the last known
    /// token and of drafts. `sequence` is its state before the step.
    pub fn process_logits<'a>(
        &mut self,
        sequence: View<'_>,
        planned: &Planned,
        mut logits: impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        self.output.clear();
        if self.request.logits || self.led.is_some() {
            return self.keep_rows(planned, logits);
        }
        self.output.first_prompt = planned.position + planned.tokens - planned.outputs + 1;
        let prompt_rows = planned.outputs - usize::from(planned.samples);
        self.read_prompt(sequence.tokens, logits.by_ref().take(prompt_rows), scratch);
        if planned.samples && sequence.capacity == sequence.prompt {
            self.output.end(Outcome::Length);
        }
        if planned.samples && self.output.outcome.is_none() {
            self.sample(sequence, planned, logits, scratch);
        }
    }

    /// Keeps the logits of prompt tokens, or their hidden states, as they are.
    fn keep_rows<'a>(&mut self, planned: &Planned, rows: impl Iterator<Item = &'a [f32]>) {
        for row in rows.take(planned.outputs) {
            if !row.iter().all(|value| value.is_finite()) {
                return self.output.end(Outcome::Failed(Error::NotFinite.to_string()));
            }
            self.output.rows.extend_from_slice(row);
        }
        if planned.samples && self.led.is_none() {
            self.output.end(Outcome::Complete);
        }
    }

    /// Computes the log probabilities of prompt tokens from `first_prompt` on.
    fn read_prompt<'a>(
        &mut self,
        tokens: &[u32],
        logits: impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        let top = self.request.prompt_logprobs.unwrap_or(0);
        for (logits, token) in logits.zip(&tokens[self.output.first_prompt..]) {
            match logprobs(logits, *token, top, scratch) {
                Ok(logprobs) => self.output.prompt.push((*token, logprobs)),
                Err(error) => return self.output.end(Outcome::Failed(error.to_string())),
            }
        }
    }

    /// Chooses a token from the logits of the last known one, and one more for each draft that
    /// proves right.
    fn sample<'a>(
        &mut self,
        sequence: View<'_>,
        planned: &Planned,
        mut logits: impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        let mut accepted = 0;
        while let Some(id) = logits.next().and_then(|row| self.choose(sequence, row, scratch)) {
            let is_right = self.draft.planned(planned).get(accepted) == Some(&id);
            if !is_right || self.output.outcome.is_some() {
                break;
            }
            accepted += 1;
        }
        self.draft.count(planned.drafts, accepted);
        self.advance_constraint();
    }

    /// Passes the ids of the step to the constraint, unless the sequence ended.
    fn advance_constraint(&mut self) {
        let StepOutput { ids, outcome, .. } = &mut self.output;
        let Some(constraint) = self.constraint.state() else { return };
        if !matches!(outcome, None | Some(Outcome::Length)) {
            return;
        }
        match constraint.accept(ids) {
            Ok(true) => *outcome = Some(Outcome::Complete),
            Ok(false) => {}
            Err(error) => *outcome = Some(Outcome::Failed(error)),
        }
    }

    /// Chooses one token, unless a stop id or an error ends the sequence.
    fn choose(
        &mut self,
        sequence: View<'_>,
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> Option<u32> {
        let chosen = self.next_id(sequence, logits, scratch).and_then(|(id, sampled)| {
            let stops = self.request.stop_ids.contains(&id);
            if stops { Err(Outcome::StopId(id)) } else { Ok((id, sampled)) }
        });
        let (id, sampled) = match chosen {
            Ok(chosen) => chosen,
            Err(outcome) => {
                self.output.end(outcome);
                return None;
            }
        };
        // The logits are finite: something was sampled from them.
        let top = self.request.logprobs;
        let logprobs =
            sampled.or_else(|| top.and_then(|top| logprobs(logits, id, top, scratch).ok()));
        self.output.ids.push(id);
        self.output.logprobs.push(logprobs);
        if sequence.tokens.len() + self.output.ids.len() == sequence.capacity {
            self.output.end(Outcome::Length);
        }
        Some(id)
    }

    /// The sampler's choice among the allowed ids, with its log probability if that is asked for
    /// as sampled, or how the sequence ends without one.
    fn next_id(
        &mut self,
        sequence: View<'_>,
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> Result<(u32, Option<TokenLogprobs>), Outcome> {
        let View { tokens, prompt, .. } = sequence;
        let fresh = &self.output.ids[..];
        let early = tokens.len() - prompt + fresh.len() < self.request.min_tokens;
        let stop_ids = &self.request.stop_ids[..];
        let banned = if early { stop_ids } else { &[] };
        let (allowed, greedy) = match self.constraint.state() {
            Some(constraint) => {
                let row = constraint.allowed(fresh.len()).map_err(Outcome::Failed)?;
                allowed(row, stop_ids, early)?
            }
            None => (None, false),
        };
        if let Some(choices) = &mut self.choices {
            choices.add(logits, greedy);
        }
        let history = History { tokens, fresh, prompt, banned, allowed, greedy };
        let top = self.request.logprobs.filter(|_| self.request.sampled_logprobs);
        let chosen = self.sampler.sample(logits, history, scratch, top);
        chosen.map_err(|error| Outcome::Failed(error.to_string()))
    }

    /// Ids sampled in this step.
    pub fn sampled(&self) -> &[u32] {
        &self.output.ids
    }

    /// Sends the events of this step to the reader. Returns whether the request has ended.
    pub fn emit_step(&mut self, sequence: View<'_>, planned: &Planned, metrics: &Metrics) -> bool {
        let Self { output, reader, .. } = self;
        let (first, tokens) = (output.first_prompt, std::mem::take(&mut output.prompt));
        if !tokens.is_empty() {
            reader.send(Event::PromptLogprobs { first, tokens });
        }
        if !output.rows.is_empty() {
            let rows = std::mem::take(&mut output.rows);
            reader.send(match &self.led {
                Some(led) if led.output == PromptOutput::HiddenStates => Event::HiddenStates(rows),
                _ => Event::Logits(rows),
            });
        }
        if !planned.samples {
            let (done, total) = (planned.position + planned.tokens, sequence.prompt);
            if done < total {
                reader.send(Event::Prefill { done, total });
            }
            return output.outcome.is_some();
        }
        match output.pooler.as_mut().map(EmbeddingPooler::finish) {
            Some(Ok(vector)) => reader.send(Event::Embedding(vector)),
            Some(Err(error)) => output.outcome = Some(Outcome::Failed(error.to_string())),
            None => {}
        }
        if planned.tokens == 1 && !output.ids.is_empty() {
            metrics.drafted(self.draft.drafter(), planned.drafts, self.draft.accepted_now);
        }
        let computed = sequence.prompt.saturating_sub(sequence.cached());
        self.clock.record_prompt(computed, metrics);
        if let Some(led) = self.led.as_mut().filter(|_| output.outcome.is_none()) {
            led.wait();
            reader.send(Event::Pushed);
        }
        self.clock.record_tokens(output.ids.len(), metrics);
        for (&id, logprobs) in output.ids.iter().zip(&mut output.logprobs) {
            if let Some(recorder) = &mut self.recorder {
                recorder.trace.ids.push(id);
            }
            reader.send(Event::Token { id, logprobs: logprobs.take() });
        }
        output.outcome.is_some()
    }

    /// Reports the end of the request, by itself or for the reason `abort`, to its reader, the
    /// metrics and its trace.
    pub fn finish(
        mut self,
        abort: Option<Outcome>,
        sequence: View<'_>,
        metrics: &Metrics,
        traces: Option<&TraceSink>,
    ) {
        let Some(outcome) = abort.or(self.output.outcome.take()) else { return };
        let now = Instant::now();
        let generated = sequence.tokens.len() - sequence.prompt;
        let cached = sequence.cached();
        self.clock.record_cut_prompt(sequence.reached.saturating_sub(cached), metrics);
        metrics.finished(&outcome, self.clock.totals(now, sequence.prompt, generated));
        if let (Some(recorder), Some(sink)) = (self.recorder.take(), traces) {
            let choices = self.choices.take().map(ChoiceRecorder::finish).unwrap_or_default();
            recorder.finish(outcome.label(), choices, sink);
        }
        if outcome == Outcome::Cancelled {
            return;
        }
        let usage = Usage {
            prompt_tokens: sequence.prompt,
            completion_tokens: generated,
            cached_tokens: cached,
            drafted_tokens: self.draft.drafted,
            accepted_tokens: self.draft.accepted,
        };
        let timings = self.clock.timings(now);
        self.reader.send(Event::Finished(Finished { outcome, usage, timings }));
    }
}

/// The ids that a row allows, `None` for all, and whether the most likely one is chosen; or how the
/// sequence ends instead.
fn allowed<'a>(
    row: &'a mut TokenMask,
    stop_ids: &[u32],
    early: bool,
) -> Result<(Option<&'a TokenSet>, bool), Outcome> {
    match (row.admit_stop_ids(stop_ids, early), row.allowed) {
        (_, Allowed::All) => Ok((None, row.greedy)),
        (true, _) => Ok((Some(&row.ids), row.greedy)),
        (false, Allowed::Listed { may_end: true }) => Err(Outcome::Complete),
        (false, Allowed::Listed { may_end: false }) => {
            Err(Outcome::Failed("the constraint allows no token of this model".into()))
        }
    }
}
