//! One request on its way: its sampler, its reader, its times.

use crate::embedding_pooler::EmbeddingPooler;
use crate::handle::Submission;
use crate::masks::ConstraintState;
use crate::metrics::{Metrics, Outcome, RequestTotals};
use crate::request::{Event, FinishReason, Finished, Request, Timings, TokenLogprobs, Usage};
use crate::sampler::{History, Sampler, SamplerScratch, logprobs};
use crate::trace::{Recorder, TraceSink};
use crate::{Error, TokenSet};
use formats::Pooling;
use sched::{Planned, PromptOutput};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;

/// How a request ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Finished(FinishReason),
    Failed(String),
    TimedOut(Duration),
    /// Its caller lost interest.
    Cancelled,
}

/// How far a request goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Most tokens to generate.
    pub budget: usize,
    /// Most tokens guessed at once.
    pub drafts: usize,
    /// Longest time from submission to the end.
    pub timeout: Option<Duration>,
}

/// A request that waits or runs. The scheduler has its tokens, the prompt among them.
#[derive(Debug)]
pub(crate) struct RunningRequest {
    submission: Submission,
    limits: Limits,
    sampler: Sampler,
    /// Its constraint, unless that is where masks are computed.
    constraint: Option<Box<ConstraintState>>,
    has_room: bool,
    /// Guesses for the next step.
    pub draft: Vec<u32>,
    /// Ids sampled in this step.
    ids: Vec<u32>,
    /// Their log probabilities, where asked for.
    logprobs: Vec<Option<TokenLogprobs>>,
    /// What becomes of the prompt's states, where they are wanted.
    pool: Option<EmbeddingPooler>,
    /// Log probabilities of the prompt's tokens from the first one on that this step brought.
    prompt: (usize, Vec<(u32, TokenLogprobs)>),
    end: Option<End>,
    generated: usize,
    cached: usize,
    /// Guesses of this step that were right, and of all.
    right: usize,
    drafted: usize,
    accepted: usize,
    admitted: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    recorder: Option<Box<Recorder>>,
}

impl RunningRequest {
    /// Tells all to `recorder`.
    pub fn new(
        submission: Submission,
        limits: Limits,
        constraint: Option<Box<ConstraintState>>,
        recorder: Option<Recorder>,
    ) -> Self {
        Self {
            constraint,
            sampler: Sampler::new(submission.request.sampling.clone()),
            submission,
            limits,
            has_room: true,
            draft: Vec::with_capacity(limits.drafts),
            ids: Vec::with_capacity(limits.drafts + 1),
            logprobs: Vec::with_capacity(limits.drafts + 1),
            pool: None,
            prompt: (0, Vec::new()),
            end: None,
            generated: 0,
            cached: 0,
            right: 0,
            drafted: 0,
            accepted: 0,
            admitted: None,
            first_token: None,
            last_token: None,
            recorder: recorder.map(Box::new),
        }
    }

    /// The same for a request that wants one vector: `pooling` is the checkpoint's own.
    pub fn pooled(self, pooling: Option<Pooling>) -> Self {
        let pool = self.submission.request.embed.map(|embed| EmbeddingPooler::new(embed, pooling));
        Self { pool, ..self }
    }

    /// The rows of the prompt whose results are wanted.
    pub fn prompt_output(&self) -> PromptOutput {
        match &self.pool {
            Some(pool) if pool.wants_all() => PromptOutput::HiddenStates,
            None if self.submission.request.prompt_logprobs.is_some() => PromptOutput::AllLogits,
            _ => PromptOutput::LastLogits,
        }
    }

    /// Whether its results are states, not logits.
    pub fn wants_states(&self) -> bool {
        self.pool.is_some()
    }

    /// Takes the states that a step gives it.
    pub fn take_states<'a>(&mut self, planned: &Planned, states: impl Iterator<Item = &'a [f32]>) {
        let Some(pool) = &mut self.pool else { return };
        self.ids.clear();
        pool.add(states);
        if planned.samples {
            self.end.get_or_insert(End::Finished(FinishReason::Length));
        }
    }

    /// Most tokens guessed at once.
    pub fn max_drafted(&self) -> usize {
        self.limits.drafts
    }

    /// Looks whether the events of one step have room, however many tokens it brings.
    pub fn look_for_room(&mut self) {
        // Besides the tokens: the admission, the prompt's, and the end.
        self.has_room = self.submission.events.capacity() >= self.limits.drafts + 4;
    }

    /// Whether there was room.
    pub fn has_room(&self) -> bool {
        self.has_room
    }

    /// What ends it from outside.
    pub fn abort_reason(&self) -> Option<End> {
        if self.submission.events.is_closed() {
            return Some(End::Cancelled);
        }
        let timeout = self.limits.timeout?;
        (self.submission.submitted.elapsed() >= timeout).then_some(End::TimedOut(timeout))
    }

    /// Its computation begins, unless it has begun before.
    pub fn admit(&mut self, cached: usize, metrics: &Metrics) {
        if self.admitted.is_some() {
            return;
        }
        self.submission.place = None;
        (self.admitted, self.cached) = (Some(Instant::now()), cached);
        let queued = self.submission.submitted.elapsed();
        metrics.admitted(queued, self.limits.prompt, cached);
        if let Some(recorder) = &mut self.recorder {
            recorder.cached(cached);
        }
        self.emit(Event::Admitted { cached_tokens: cached, queued_s: queued.as_secs_f64() });
    }

    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// Whether its constraint is where masks are computed.
    pub fn is_lent(&self) -> bool {
        self.submission.request.constraint.is_some() && self.constraint.is_none()
    }

    /// Its constraint, on the way to where masks are computed, unless that is here.
    pub fn lend(&mut self, planned: &Planned) -> Option<Box<ConstraintState>> {
        let constraint = self.constraint.as_mut()?;
        constraint.set_draft(&self.draft[..planned.drafts]);
        if constraint.is_quick() {
            constraint.compute();
            return None;
        }
        self.constraint.take()
    }

    /// Its constraint is back.
    pub fn take_back(&mut self, constraint: Box<ConstraintState>) {
        self.constraint = Some(constraint);
    }

    /// The step broke and will be repeated: its constraint forgets the guesses, or ends it.
    pub fn discard_draft(&mut self) -> Option<End> {
        self.constraint.as_mut()?.accept(&[]).err().map(End::Failed)
    }

    /// Takes the logits that a step gives it: of tokens of its prompt, where they are wanted, and of
    /// the last known token and of guesses. `tokens` are those before this step.
    pub fn process_logits<'a>(
        &mut self,
        tokens: &[u32],
        planned: &Planned,
        mut logits: impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        self.ids.clear();
        self.logprobs.clear();
        let row = planned.position + planned.tokens - planned.outputs;
        let count = planned.outputs - usize::from(planned.samples);
        self.read(tokens, (row, count), &mut logits, scratch);
        if planned.samples && self.limits.budget == 0 {
            self.end.get_or_insert(End::Finished(FinishReason::Length));
        }
        if planned.samples && self.end.is_none() {
            self.sample(tokens, planned, logits, scratch);
        }
    }

    /// The log probabilities of the tokens behind `count` rows of the prompt from `row` on.
    fn read<'a>(
        &mut self,
        tokens: &[u32],
        (row, count): (usize, usize),
        logits: &mut impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        let top = self.submission.request.prompt_logprobs.unwrap_or(0);
        self.prompt.0 = row + 1;
        for (token, logits) in tokens[row + 1..].iter().zip(logits.take(count)) {
            match logprobs(logits, *token, top, scratch) {
                Ok(logprobs) => self.prompt.1.push((*token, logprobs)),
                Err(error) => return self.fail(&error),
            }
        }
    }

    /// Chooses a token from the logits of its last known one, and as many more as its guesses turn
    /// out right.
    fn sample<'a>(
        &mut self,
        tokens: &[u32],
        planned: &Planned,
        mut logits: impl Iterator<Item = &'a [f32]>,
        scratch: &mut SamplerScratch,
    ) {
        let mut right = 0;
        while let Some(id) = logits.next().and_then(|row| self.choose(tokens, row, scratch)) {
            if right == planned.drafts || self.draft[right] != id || self.end.is_some() {
                break;
            }
            right += 1;
        }
        self.right = right;
        self.drafted += planned.drafts;
        self.accepted += right;
        self.advance_constraint();
    }

    /// Has the constraint take note of the step, unless the sequence ended on its own.
    fn advance_constraint(&mut self) {
        let Some(constraint) = &mut self.constraint else { return };
        if !matches!(self.end, None | Some(End::Finished(FinishReason::Length))) {
            return;
        }
        match constraint.accept(&self.ids) {
            Ok(true) => self.end = Some(End::Finished(FinishReason::Complete)),
            Ok(false) => {}
            Err(error) => self.end = Some(End::Failed(error)),
        }
    }

    /// One token, unless a stop id or an error ends the sequence.
    fn choose(
        &mut self,
        tokens: &[u32],
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> Option<u32> {
        let id = match self.next_id(tokens, logits, scratch) {
            Ok(id) => id,
            Err(end) => {
                self.end = Some(end);
                return None;
            }
        };
        let request = &self.submission.request;
        if request.stop_ids.contains(&id) {
            self.end = Some(End::Finished(FinishReason::Stop(id)));
            return None;
        }
        // They are finite: something was sampled from them.
        let logprobs = request.logprobs.and_then(|top| logprobs(logits, id, top, scratch).ok());
        self.ids.push(id);
        self.logprobs.push(logprobs);
        if self.generated + self.ids.len() == self.limits.budget {
            self.end = Some(End::Finished(FinishReason::Length));
        }
        Some(id)
    }

    fn fail(&mut self, error: &Error) {
        self.end = Some(End::Failed(error.to_string()));
    }

    /// The sampler's choice among what is allowed, or how the sequence ends without one.
    fn next_id(
        &mut self,
        tokens: &[u32],
        logits: &[f32],
        scratch: &mut SamplerScratch,
    ) -> Result<u32, End> {
        let request = &self.submission.request;
        let early = self.generated + self.ids.len() < request.min_tokens;
        let banned = if early { &request.stop_ids[..] } else { &[] };
        let allowed = match &mut self.constraint {
            Some(constraint) => Some(allowed(constraint, self.ids.len(), request, early)?),
            None => None,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.choose(logits);
        }
        let (fresh, prompt) = (&self.ids[..], self.limits.prompt);
        let history = History { tokens, fresh, prompt, banned, allowed };
        let chosen = self.sampler.sample(logits, history, scratch);
        chosen.map_err(|error| End::Failed(error.to_string()))
    }

    /// Ids sampled in this step.
    pub fn sampled(&self) -> &[u32] {
        &self.ids
    }

    /// Tells the reader what this step brought. True if the request has ended.
    pub fn emit_step(&mut self, planned: &Planned, metrics: &Metrics) -> bool {
        let (first, tokens) = (self.prompt.0, std::mem::take(&mut self.prompt.1));
        if !tokens.is_empty() {
            self.emit(Event::PromptLogprobs { first, tokens });
        }
        if !planned.samples {
            let (done, total) = (planned.position + planned.tokens, self.limits.prompt);
            if done < total {
                self.emit(Event::Prefill { done, total });
            }
            return self.end.is_some();
        }
        match self.pool.as_mut().map(EmbeddingPooler::finish) {
            Some(Ok(vector)) => self.emit(Event::Embedding(vector)),
            Some(Err(error)) => self.fail(&error),
            None => {}
        }
        self.measure(planned, metrics);
        for at in 0..self.ids.len() {
            let (id, logprobs) = (self.ids[at], self.logprobs[at].take());
            if let Some(recorder) = &mut self.recorder {
                recorder.token(id);
            }
            self.emit(Event::Token { id, logprobs });
        }
        self.end.is_some()
    }

    fn measure(&mut self, planned: &Planned, metrics: &Metrics) {
        let now = Instant::now();
        if planned.drafts > 0 {
            metrics.drafted(planned.drafts, self.right);
        }
        self.generated += self.ids.len();
        if self.ids.is_empty() {
            return;
        }
        match self.last_token.replace(now) {
            Some(last) => metrics.tokens(self.ids.len(), now - last),
            None => {
                self.first_token = Some(now);
                let admitted = self.admitted.unwrap_or(now);
                let computed = self.limits.prompt - self.cached;
                let since_submitted = self.submission.submitted.elapsed();
                metrics.first_token(since_submitted, now - admitted, computed);
                metrics.tokens(self.ids.len() - 1, Duration::ZERO);
            }
        }
    }

    /// The last word to the reader: how it ended, by itself or by `abort` from outside.
    pub fn finish(mut self, abort: Option<End>, metrics: &Metrics, traces: Option<&TraceSink>) {
        let Some(end) = abort.or(self.end.take()) else { return };
        let now = Instant::now();
        let since = |from: Option<Instant>| from.map_or(Duration::ZERO, |from| now - from);
        let outcome = match &end {
            End::Finished(FinishReason::Stop(_) | FinishReason::Complete) => Outcome::Stop,
            End::Finished(FinishReason::Length) => Outcome::Length,
            End::Failed(_) => Outcome::Failed,
            End::TimedOut(_) => Outcome::TimedOut,
            End::Cancelled => Outcome::Cancelled,
        };
        let ended = RequestTotals {
            prompt_tokens: self.limits.prompt,
            generated: self.generated,
            total: now - self.submission.submitted,
            decode: since(self.first_token),
        };
        metrics.finished(outcome, ended);
        if let (Some(recorder), Some(sink)) = (self.recorder.take(), traces) {
            recorder.finish(outcome.name(), sink);
        }
        match end {
            End::Finished(reason) => self.emit(Event::Finished(self.finished(reason, now))),
            End::Failed(error) => self.emit(Event::Failed(error)),
            End::TimedOut(limit) => self.emit(Event::TimedOut(limit)),
            End::Cancelled => {}
        }
    }

    fn finished(&self, reason: FinishReason, now: Instant) -> Finished {
        let admitted = self.admitted.unwrap_or(now);
        let first = self.first_token.unwrap_or(now);
        Finished {
            reason,
            usage: Usage {
                prompt_tokens: self.limits.prompt,
                completion_tokens: self.generated,
                cached_tokens: self.cached,
                drafted_tokens: self.drafted,
                accepted_tokens: self.accepted,
            },
            timings: Timings {
                queued_s: (admitted - self.submission.submitted).as_secs_f64(),
                prefill_s: (first - admitted).as_secs_f64(),
                decode_s: (now - first).as_secs_f64(),
            },
        }
    }

    /// Sends an event. Sequences whose channel is full are not planned, so there is room; who is
    /// cut off without having read hears nothing more.
    fn emit(&self, event: Event) {
        if let Err(TrySendError::Full(event)) = self.submission.events.try_send(event) {
            tracing::debug!("a reader too slow for {event:?}");
        }
    }
}

/// What may be chosen in row `at` of this step, or how the sequence ends instead.
fn allowed<'a>(
    constraint: &'a mut ConstraintState,
    at: usize,
    request: &Request,
    early: bool,
) -> Result<&'a TokenSet, End> {
    let row = constraint.allowed(at).map_err(End::Failed)?;
    match (row.admit_stop_ids(&request.stop_ids, early), row.may_end) {
        (true, _) => Ok(&row.ids),
        (false, true) => Err(End::Finished(FinishReason::Complete)),
        (false, false) => Err(End::Failed("the constraint allows no token of this model".into())),
    }
}
