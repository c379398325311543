//! The engine thread: drain, plan, batch, forward, sample, commit, emit.

use crate::handle::{Door, EngineHandle, Submission, door};
use crate::request::{Event, FinishReason, Finished, Timings, Usage};
use crate::runner::BLOCK;
use crate::sampler::{History, Sampler, Scratch, logprobs};
use crate::{Error, Runner};
use backend::Batch;
use sched::{Planned, Scheduler, SequenceId};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};

/// How an engine takes requests.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Requests that may wait before more are refused.
    pub queue: usize,
    /// Sequences that run at once.
    pub running: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { queue: 256, running: 8 }
    }
}

/// Sequences taken from the door before the ones already taken are admitted; the rest waits in
/// the door's bounded queue, where it counts against its limit.
const LOOKAHEAD: usize = 1;
/// Pause when all sequences wait for their readers.
const STALLED: Duration = Duration::from_millis(2);

/// Starts the engine thread. It ends when the last handle and generation are gone.
pub fn start(runner: Runner, options: EngineOptions) -> (EngineHandle, JoinHandle<()>) {
    let (handle, door) = door(runner.info().clone(), options.queue);
    let thread = std::thread::Builder::new()
        .name("gannet-engine".into())
        .spawn(move || {
            runner.pin_caller();
            Engine::new(runner, door, options).run();
        })
        .expect("cannot start the engine thread");
    (handle, thread)
}

/// A request on its way.
struct Active {
    id: SequenceId,
    submission: Submission,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    sampler: Sampler,
    /// Most tokens to generate.
    budget: usize,
    admitted: Option<Instant>,
    first_logits: Option<Instant>,
}

impl Active {
    fn prompt(&self) -> usize {
        self.submission.request.prompt.len()
    }

    fn generated(&self) -> usize {
        self.tokens.len() - self.prompt()
    }

    /// Sends an event. The scheduler skips sequences whose channel is full, so there is room.
    fn emit(&self, event: Event) {
        match self.submission.events.try_send(event) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => unreachable!("room is made before a step"),
        }
    }

    /// Whether the events of one step have room.
    fn has_room(&self) -> bool {
        // A token and the end of the generation may follow each other.
        self.submission.events.capacity() >= 2
    }

    fn finished(&self, reason: FinishReason) -> Finished {
        let now = Instant::now();
        let since = |from: Option<Instant>, to: Instant| {
            from.map_or(0.0, |from| to.saturating_duration_since(from).as_secs_f64())
        };
        let admitted = self.admitted.unwrap_or(now);
        let first = self.first_logits.unwrap_or(now);
        Finished {
            reason,
            usage: Usage {
                prompt_tokens: self.prompt(),
                completion_tokens: self.generated(),
                cached_tokens: 0,
            },
            timings: Timings {
                queued_s: since(Some(self.submission.submitted), admitted),
                prefill_s: since(Some(admitted), first),
                decode_s: since(Some(first), now),
            },
        }
    }
}

struct Engine {
    runner: Runner,
    door: Door,
    scheduler: Scheduler,
    active: Vec<Active>,
    next_id: u64,
    plan: Vec<Planned>,
    batch: Batch,
    scratch: Scratch,
    /// Whether all handles are gone.
    closed: bool,
}

impl Engine {
    fn new(runner: Runner, door: Door, options: EngineOptions) -> Self {
        let limits = sched::Limits {
            // Every sequence that decodes wants logits.
            running: options.running.clamp(1, runner.limits().logit_rows),
            step_tokens: runner.limits().rows,
            block: BLOCK,
        };
        Self {
            scheduler: Scheduler::new(limits, runner.blocks()),
            batch: runner.batch(),
            scratch: Scratch::new(runner.info().vocab_size),
            active: Vec::new(),
            next_id: 0,
            plan: Vec::with_capacity(limits.running),
            closed: false,
            door,
            runner,
        }
    }

    fn run(mut self) {
        while self.drain() {
            self.cancel();
            self.plan();
            if self.plan.is_empty() {
                if !self.active.is_empty() {
                    std::thread::sleep(STALLED);
                }
                continue;
            }
            self.step();
        }
    }

    /// Takes new requests; waits for one if there is nothing else to do. False at the end.
    fn drain(&mut self) -> bool {
        if self.active.is_empty() {
            match self.door.submissions.blocking_recv() {
                Some(submission) => self.accept(submission),
                None => return false,
            }
        }
        while !self.closed && self.scheduler.waiting() < LOOKAHEAD {
            match self.door.submissions.try_recv() {
                Ok(submission) => self.accept(submission),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
        true
    }

    fn accept(&mut self, submission: Submission) {
        if submission.events.is_closed() {
            return;
        }
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let request = &submission.request;
        let (prompt, info) = (request.prompt.len(), self.runner.info());
        let room = info.context_length - prompt;
        let budget = request.max_tokens.unwrap_or(room).min(room);
        let sampler = Sampler::new(request.sampling.clone(), info.vocab_size);
        let mut tokens = Vec::with_capacity(prompt + budget.min(1 << 16));
        tokens.extend_from_slice(&request.prompt);
        let active =
            Active { id, submission, tokens, sampler, budget, admitted: None, first_logits: None };
        if budget == 0 {
            return active.emit(Event::Finished(active.finished(FinishReason::Length)));
        }
        self.scheduler.add(id, prompt, prompt + budget);
        self.active.push(active);
    }

    /// Forgets requests whose caller lost interest.
    fn cancel(&mut self) {
        let gone = |active: &Active| active.submission.events.is_closed();
        for active in self.active.iter().filter(|a| gone(a)) {
            self.scheduler.finish(active.id);
        }
        self.active.retain(|active| !gone(active));
    }

    fn plan(&mut self) {
        let active = &self.active;
        let ready = |id| active.iter().any(|a| a.id == id && a.has_room());
        self.scheduler.plan(ready, &mut self.plan);
    }

    fn step(&mut self) {
        self.fill_batch();
        match self.runner.forward(&self.batch) {
            Ok(logits) => {
                let vocab = logits.len() / self.batch.logit_rows().len().max(1);
                let mut rows = logits.chunks_exact(vocab.max(1));
                for planned in &self.plan {
                    self.scheduler.commit(*planned);
                    let active =
                        self.active.iter_mut().find(|a| a.id == planned.id).expect("planned");
                    let logits = planned.samples.then(|| rows.next().expect("a row was asked for"));
                    if advance(active, *planned, logits, &mut self.scratch) {
                        self.scheduler.finish(planned.id);
                    }
                }
                self.active.retain(|active| self.scheduler.knows(active.id));
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fill_batch(&mut self) {
        self.batch.clear();
        let now = Instant::now();
        for planned in &self.plan {
            let active = self.active.iter_mut().find(|a| a.id == planned.id).expect("planned");
            active.admitted.get_or_insert(now);
            let end = planned.position + planned.tokens;
            let blocks = &self.scheduler.blocks(planned.id)[..end.div_ceil(BLOCK)];
            let tokens = &active.tokens[planned.position..end];
            self.batch.push(tokens, planned.position, blocks, usize::from(planned.samples));
        }
    }

    /// Ends the sequences that `error` is about: the one whose row it names, or all of the step.
    /// Nothing was committed, so the others are planned again and lose nothing.
    fn fail(&mut self, error: &Error) {
        let row = match error {
            Error::Model(models::Error::NotFinite { row, .. }) => Some(*row),
            _ => None,
        };
        for (planned, rows) in self.plan.iter().zip(self.batch.sequences()) {
            if row.is_none_or(|row| rows.rows.contains(&row)) {
                self.scheduler.finish(planned.id);
                let at = self.active.iter().position(|a| a.id == planned.id).expect("planned");
                self.active.remove(at).emit(Event::Failed(error.to_string()));
            }
        }
    }
}

/// Samples, emits and says whether the sequence has ended.
fn advance(
    active: &mut Active,
    planned: Planned,
    logits: Option<&[f32]>,
    scratch: &mut Scratch,
) -> bool {
    let Some(logits) = logits else {
        let done = planned.position + planned.tokens;
        active.emit(Event::Prefill { done, total: active.prompt() });
        return false;
    };
    active.first_logits.get_or_insert_with(Instant::now);
    let request = &active.submission.request;
    let generated = active.tokens.len() - request.prompt.len();
    let banned = if generated < request.min_tokens { &request.stop_ids[..] } else { &[] };
    let history = History { tokens: &active.tokens, prompt: request.prompt.len(), banned };
    let id = match active.sampler.sample(logits, history, scratch) {
        Ok(id) => id,
        Err(error) => {
            active.emit(Event::Failed(error.to_string()));
            return true;
        }
    };
    if request.stop_ids.contains(&id) {
        active.emit(Event::Finished(active.finished(FinishReason::Stop(id))));
        return true;
    }
    let logprobs = request.logprobs.map(|top| logprobs(logits, id, top, scratch));
    active.tokens.push(id);
    active.emit(Event::Token { id, logprobs });
    if active.generated() < active.budget {
        return false;
    }
    active.emit(Event::Finished(active.finished(FinishReason::Length)));
    true
}
