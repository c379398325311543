//! The stream of events of one request.

use crate::answer_record::AnswerRecord;
use crate::assemble::Assembler;
use crate::cache_watch::CacheWatch;
use crate::error::ApiError;
use crate::event::{Done, Finish, TextEvent};
use crate::receipt::Receipt;
use crate::receipt_issuer::ReceiptIssuer;
use crate::replay::ReplayMemory;
use crate::replay_turn::ReplayTurn;
use crate::request::Origin;
use crate::usage_counter::{Usage, UsageCounter};
use engine::{Event, Finished, Generation, Outcome, TokenLogprobs};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The stream of events of one request. Dropping the stream cancels the request and no other.
#[derive(Debug)]
pub struct TextStream {
    generation: Option<Generation>,
    assembler: Assembler,
    meter: UsageCounter,
    watch: CacheWatch,
    ready: VecDeque<TextEvent>,
    record: Option<TurnRecorder>,
    receipt: Option<ReceiptIssuer>,
    /// The answer in its transcript.
    answer: Option<Arc<Mutex<AnswerRecord>>>,
    /// Whether the progress of the prompt is reported.
    progress: bool,
    /// Prompt tokens of the last report.
    reported: Option<usize>,
    /// When the prompt was begun, and when the log last had a line about it.
    begun: Instant,
    logged: Instant,
}

/// Time between the lines of the log about a prompt.
const PROMPT_LINES: Duration = Duration::from_secs(5);

/// Collects a turn for the replay memory, which keeps it if the answer ends in calls.
#[derive(Debug)]
pub(crate) struct TurnRecorder {
    pub memory: Arc<ReplayMemory>,
    pub origin: Origin,
    /// The prompt after the tokens of the parent turn.
    pub prompt: Vec<u32>,
    pub sampled: Vec<u32>,
}

impl TextStream {
    pub(crate) fn new(
        generation: Generation,
        assembler: Assembler,
        meter: UsageCounter,
        watch: CacheWatch,
        record: Option<TurnRecorder>,
    ) -> Self {
        let generation = Some(generation);
        let now = Instant::now();
        Self {
            generation,
            assembler,
            meter,
            watch,
            ready: VecDeque::new(),
            record,
            receipt: None,
            answer: None,
            progress: false,
            reported: None,
            begun: now,
            logged: now,
        }
    }

    /// The same stream with a receipt at the end, if there is one.
    pub(crate) fn with_receipt(self, receipt: Option<ReceiptIssuer>) -> Self {
        Self { receipt, ..self }
    }

    /// The same stream, which records the answer.
    pub(crate) fn recorded(self, answer: Arc<Mutex<AnswerRecord>>) -> Self {
        Self { answer: Some(answer), ..self }
    }

    /// The same stream with the progress of the prompt.
    pub(crate) fn with_progress(self) -> Self {
        Self { progress: true, ..self }
    }

    /// Waits for the next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<TextEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.generation.as_mut()?.next().await;
            self.take(event);
        }
    }

    /// Blocks the thread until the next event. Must not be called from async code.
    pub fn next_blocking(&mut self) -> Option<TextEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.generation.as_mut()?.next_blocking();
            self.take(event);
        }
    }

    fn take(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Admitted { lookup, queued_s }) => {
                self.meter.admitted(lookup.found, queued_s);
                (self.begun, self.logged) = (Instant::now(), Instant::now());
                self.ready.push_back(TextEvent::Admitted(self.watch.admitted(&lookup)));
                self.prefilled(lookup.found);
            }
            Some(Event::Prefill { done, .. }) => self.prefilled(done),
            Some(Event::PromptLogprobs { first, tokens }) => {
                let tokens = tokens.iter().map(|(id, it)| self.assembler.token_text(*id, it));
                let tokens = tokens.collect();
                self.ready.push_back(TextEvent::Prompt { first, tokens });
            }
            // Requests of this stream have answers.
            Some(
                Event::Embedding(_) | Event::Logits(_) | Event::HiddenStates(_) | Event::Pushed,
            ) => {}
            Some(Event::Token { id, logprobs }) => self.token(id, logprobs),
            Some(Event::Finished(finished)) => self.finished(finished),
            None => self.end(TextEvent::Failed(ApiError::Stopped)),
        }
    }

    /// Reports that `done` tokens of the prompt are there, if these are more than before: a
    /// sequence that was preempted computes some again.
    fn prefilled(&mut self, done: usize) {
        self.log_prompt(done);
        self.watch.prefilled(done);
        if self.progress && self.reported.is_none_or(|before| before < done) {
            self.reported = Some(done);
            let Usage { cached_tokens: cached, prompt_tokens: total, .. } = self.meter.usage;
            self.ready.push_back(TextEvent::Prefill { cached, done, total });
        }
    }

    /// Logs how far a long prompt is, every few seconds.
    fn log_prompt(&mut self, done: usize) {
        let Usage { cached_tokens: cached, prompt_tokens: total, .. } = self.meter.usage;
        if done < total && self.logged.elapsed() >= PROMPT_LINES {
            self.logged = Instant::now();
            let computed = done.saturating_sub(cached) as f64;
            let rate = computed / self.begun.elapsed().as_secs_f64();
            tracing::info!(done, total, cached, "prompt: {rate:.0} tokens/s");
        }
    }

    fn token(&mut self, id: u32, logprobs: Option<TokenLogprobs>) {
        self.prefilled(self.meter.usage.prompt_tokens);
        if let Some(record) = &mut self.record {
            record.sampled.push(id);
        }
        if let Some(receipt) = &mut self.receipt {
            receipt.push(id);
        }
        self.watch.answered(id);
        let step = self.assembler.push(id, logprobs);
        self.meter.token(id);
        self.record(Some(id), &step.pieces, false);
        self.ready.extend(step.pieces);
        if let Some(stop) = step.stop {
            self.cut(Finish::StopString(stop));
        } else if step.complete {
            let last = self.assembler.finish(false);
            self.record(None, &last.pieces, true);
            self.ready.extend(last.pieces);
            self.cut(self.called().unwrap_or(Finish::StopId(id)));
        }
    }

    /// Ends the answer and cancels the generation.
    fn cut(&mut self, finish: Finish) {
        self.meter.usage.reasoning_tokens = self.assembler.reasoning_tokens();
        let (usage, timings) = self.meter.cut();
        let receipt = self.issue_receipt(&finish, false);
        self.done(Done { finish, usage, timings, receipt });
    }

    /// The receipt, if there is to be one. `stops` says whether the engine chose a stop id.
    fn issue_receipt(&mut self, finish: &Finish, stops: bool) -> Option<Box<Receipt>> {
        self.receipt.take().map(|receipt| Box::new(receipt.issue(finish, stops)))
    }

    fn finished(&mut self, finished: Finished) {
        if let Some(error) = ApiError::of(&finished.outcome) {
            return self.end(TextEvent::Failed(error));
        }
        self.prefilled(self.meter.usage.prompt_tokens);
        let last = self.assembler.finish(finished.outcome == Outcome::Length);
        self.record(None, &last.pieces, finished.outcome != Outcome::Length);
        self.ready.extend(last.pieces);
        self.meter.usage.reasoning_tokens = self.assembler.reasoning_tokens();
        let (usage, timings) = self.meter.finished(&finished);
        let stops = matches!(finished.outcome, Outcome::StopId(_));
        let finish = match (last.stop, finished.outcome) {
            (Some(stop), _) => Finish::StopString(stop),
            (None, Outcome::StopId(id)) => self.called().unwrap_or(Finish::StopId(id)),
            (None, Outcome::Length) => Finish::Length,
            (None, _) => self.called().unwrap_or(Finish::Complete),
        };
        let receipt = self.issue_receipt(&finish, stops);
        self.done(Done { finish, usage, timings, receipt });
    }

    /// The finish of an answer with calls; `None` without calls.
    fn called(&self) -> Option<Finish> {
        self.assembler.calls().map(|_| Finish::ToolCalls)
    }

    fn done(&mut self, done: Done) {
        let record = self.record.take().filter(|_| !self.assembler.is_cut());
        if let (Finish::ToolCalls, Some(record)) = (&done.finish, record) {
            self.remember(record);
        }
        self.end(TextEvent::Done(done));
    }

    /// Stores the turn before the end is reported, so that the client's next request finds it.
    fn remember(&self, record: TurnRecorder) {
        let Some((calls, content)) = self.assembler.calls() else { return };
        let TurnRecorder { memory, origin, prompt, sampled } = record;
        let (calls, content) = (calls.to_vec(), content.to_owned());
        let Origin { before, parent, .. } = origin;
        let (weight, record) = Default::default();
        let turn = ReplayTurn { calls, content, before, parent, prompt, sampled, weight, record };
        memory.remember(turn);
    }

    /// Adds a token and its events to the answer of the transcript, which it ends if
    /// `is_ended`.
    fn record(&self, id: Option<u32>, events: &[TextEvent], is_ended: bool) {
        let Some(answer) = &self.answer else { return };
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.sampled.extend(id);
        answer.take(events);
        answer.settled = self.assembler.settled(is_ended);
        answer.is_foreign = self.assembler.is_cut();
    }

    fn end(&mut self, event: TextEvent) {
        self.ready.push_back(event);
        self.generation = None;
    }
}
