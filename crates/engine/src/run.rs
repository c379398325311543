//! The engine thread: drain, plan, batch, forward, sample, commit, emit.
//!
//! Invariant: one thread, no locks, and nothing but the reader's own channel between a sequence
//! and its reader.

use crate::block_root::block_root;
use crate::draft::{DraftRequest, Drafter, MAX_DRAFTED, PromptLookup, Speculate};
use crate::handle::{EngineHandle, RequestReceiver, Submission, request_channel};
use crate::masks::{ConstraintState, Masks};
use crate::metrics::Step;
use crate::prefill_budget::PrefillBudget;
use crate::running_request::{self, End, RunningRequest};
use crate::sampler::SamplerScratch;
use crate::trace::{Recorder, TraceSink, TraceStep};
use crate::{Error, Runner};
use backend::Batch;
use base::Rng;
use sched::{BlockCopy, NewSequence, Planned, PromptOutput, Scheduler, SequenceId};
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How an engine takes requests.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Requests that may wait before more are refused.
    pub queue: usize,
    /// Sequences that run at once.
    pub running: usize,
    /// Time between tokens that prompts of others shall not exceed.
    pub itl_target: Duration,
    /// How the next tokens are guessed, unless a request says otherwise.
    pub speculate: Speculate,
    /// Longest time of a request, from submission to its end.
    pub timeout: Option<Duration>,
    /// Where traces of requests go.
    pub traces: Option<TraceSink>,
    /// Bytes of the KV cache beyond those in use that are made ready at the start, and while there
    /// is nothing to do. Systems give memory when it is first written, which takes a prompt up to a third more time.
    pub cache_ahead: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            queue: 256,
            running: 16,
            itl_target: Duration::from_millis(100),
            speculate: Speculate::Off,
            timeout: None,
            traces: None,
            cache_ahead: 0,
        }
    }
}

impl EngineOptions {
    /// Rows whose logits the engine may want of one step: one of each sequence, and guesses of
    /// some.
    pub fn logit_rows(&self) -> usize {
        self.running.max(1) + 4 * MAX_DRAFTED
    }
}

/// Bytes of the KV cache made ready between two looks for requests.
const MAX_TOUCHED: usize = 16 << 20;
/// Pause when all sequences wait for their readers.
const READER_POLL: Duration = Duration::from_millis(2);

/// Starts the engine thread. It ends when the last handle and generation are gone.
pub fn start(runner: Runner, options: EngineOptions) -> (EngineHandle, JoinHandle<()>) {
    let (handle, receiver) = request_channel(runner.info().clone(), options.queue);
    // Started here, so that it is not pinned to the engine's CPU.
    let masks = Masks::start();
    let thread = std::thread::Builder::new()
        .name("gannet-engine".into())
        .spawn(move || {
            runner.pin_caller();
            Engine::new(runner, receiver, options, masks).run();
        })
        .expect("cannot start the engine thread");
    (handle, thread)
}

struct Engine {
    runner: Runner,
    receiver: RequestReceiver,
    options: EngineOptions,
    scheduler: Scheduler,
    requests: BTreeMap<SequenceId, RunningRequest>,
    drafter: Box<dyn Drafter>,
    masks: Masks,
    prefill_budget: PrefillBudget,
    next_id: u64,
    plan: Vec<Planned>,
    batch: Batch,
    scratch: SamplerScratch,
    /// Blocks from the first on whose memory is there.
    ready: usize,
    /// Preemptions and evictions that were reported.
    reported: (u64, u64),
}

impl Engine {
    fn new(
        runner: Runner,
        receiver: RequestReceiver,
        options: EngineOptions,
        masks: Masks,
    ) -> Self {
        let models::WorkspaceLimits { rows, logit_rows } = runner.limits();
        let running = options.running.clamp(1, logit_rows);
        let limits = sched::SchedulerLimits {
            running,
            rows,
            logits: logit_rows,
            block: runner.block(),
            blocks: runner.blocks(),
            window: runner.window(),
        };
        Self {
            scheduler: Scheduler::new(limits, block_root(runner.settings(), runner.block())),
            batch: runner.batch(),
            scratch: SamplerScratch::new(runner.info().vocab_size),
            requests: BTreeMap::new(),
            drafter: Box::new(PromptLookup),
            masks,
            prefill_budget: PrefillBudget::new(options.itl_target, runner.chunk()),
            next_id: 0,
            plan: Vec::with_capacity(running),
            ready: 0,
            reported: (0, 0),
            options,
            receiver,
            runner,
        }
    }

    fn run(mut self) {
        self.touch_cache_ahead(|_| true);
        while self.drain() {
            let start = Instant::now();
            self.plan();
            if self.plan.is_empty() {
                self.wait_for_readers();
                continue;
            }
            self.batch();
            match self.forward() {
                Ok(()) => {
                    self.sample();
                    self.commit();
                    self.emit();
                }
                Err(error) => self.fail(&error),
            }
            self.record_step(start.elapsed());
        }
    }

    /// Takes new requests, and forgets those that are cut off. Waits if there is nothing else to
    /// do; false at the end.
    fn drain(&mut self) -> bool {
        if self.requests.is_empty() {
            self.report();
            self.receiver.metrics.working(false);
            self.touch_cache_ahead(|engine| engine.receiver.submissions.is_empty());
            match self.receiver.submissions.blocking_recv() {
                Some(submission) => self.accept(submission),
                None => return false,
            }
        }
        while let Ok(submission) = self.receiver.submissions.try_recv() {
            self.accept(submission);
        }
        self.remove_aborted();
        true
    }

    /// Has memory for the blocks that will be taken next, as long as `may_go_on`.
    fn touch_cache_ahead(&mut self, may_go_on: impl Fn(&Self) -> bool) {
        let block = (self.runner.memory().cache / self.runner.blocks()).max(1);
        let sched::BlockCounts { used, cached, .. } = self.scheduler.blocks();
        let goal = (used + cached + self.options.cache_ahead / block).min(self.runner.blocks());
        while self.ready < goal && may_go_on(self) {
            let end = (self.ready + MAX_TOUCHED.div_ceil(block)).min(goal);
            self.runner.touch_cache(self.ready..end);
            self.ready = end;
        }
    }

    fn accept(&mut self, mut submission: Submission) {
        let (number, info) = (self.next_id, self.runner.info());
        self.next_id += 1;
        let request = &mut submission.request;
        request.sampling.seed.get_or_insert_with(Rng::entropy_seed);
        let room = info.context_length - request.prompt.len();
        let wished = if request.embed.is_some() { Some(0) } else { request.max_tokens };
        let budget = wished.unwrap_or(room).min(room);
        let drafts = request.speculate.unwrap_or(self.options.speculate).max().min(MAX_DRAFTED);
        let timeout = request.timeout.or(self.options.timeout);
        let traced = self.options.traces.is_some();
        let recorder = traced.then(|| Recorder::new(&self.runner, request, number));
        let constraint = ConstraintState::of(request, info.vocab_size);
        let prompt = std::mem::take(&mut request.prompt);
        let new = NewSequence {
            id: SequenceId(number),
            capacity: prompt.len() + budget,
            prompt,
            priority: request.priority,
            tenant: request.tenant,
            cold: request.cold,
            output: PromptOutput::LastLogits,
        };
        let limits = running_request::Limits { prompt: new.prompt.len(), budget, drafts, timeout };
        let is_empty = budget == 0 && !request.wants_prompt();
        let running = RunningRequest::new(submission, limits, constraint, recorder);
        let running = running.pooled(self.runner.pooling());
        let new = NewSequence { output: running.prompt_output(), ..new };
        if is_empty {
            let length = End::Finished(crate::FinishReason::Length);
            return running.finish(Some(length), &self.receiver.metrics, None);
        }
        self.requests.insert(new.id, running);
        self.scheduler.add(new);
    }

    /// Forgets requests whose caller lost interest or whose time is up.
    fn remove_aborted(&mut self) {
        let cut =
            |(id, running): (&SequenceId, &RunningRequest)| Some((*id, running.abort_reason()?));
        while let Some((id, end)) = self.requests.iter().find_map(cut) {
            self.remove(id, Some(end));
        }
    }

    /// Takes a sequence out, with the last word to its reader.
    fn remove(&mut self, id: SequenceId, end: Option<End>) {
        self.scheduler.finish(id);
        self.drafter.forget(id);
        if let Some(running) = self.requests.remove(&id) {
            running.finish(end, &self.receiver.metrics, self.options.traces.as_ref());
        }
    }

    fn plan(&mut self) {
        self.offer_drafts();
        let Self { scheduler, requests, prefill_budget, plan, .. } = self;
        // Readers go on reading: whoever has room does so for the whole plan, or not at all.
        requests.values_mut().for_each(RunningRequest::look_for_room);
        let ready = |id| requests.get(&id).is_some_and(RunningRequest::has_room);
        let drafts = |id| requests.get(&id).map_or(0, |running| running.draft.len());
        let decoding = scheduler.decoding().filter(|&id| ready(id)).count();
        scheduler.plan(prefill_budget.prompt(decoding), ready, drafts, plan);
    }

    /// Has the drafter guess for those that decode and wish it.
    fn offer_drafts(&mut self) {
        let Self { scheduler, requests, drafter, .. } = self;
        let mut requests_for_drafts: Vec<DraftRequest<'_>> = Vec::new();
        for (id, running) in requests.iter_mut().filter(|(_, running)| running.max_drafted() > 0) {
            running.draft.clear();
            if scheduler.decoding().any(|decoding| decoding == *id) {
                let (tokens, max) = (scheduler.tokens(*id), running.max_drafted());
                requests_for_drafts.push(DraftRequest {
                    id: *id,
                    tokens,
                    max,
                    draft: &mut running.draft,
                });
            }
        }
        if !requests_for_drafts.is_empty() {
            drafter.draft(&mut requests_for_drafts);
        }
    }

    /// All sequences wait for their readers, or for those who do.
    fn wait_for_readers(&mut self) {
        self.report();
        self.receiver.metrics.working(false);
        if !self.requests.is_empty() {
            std::thread::sleep(READER_POLL);
        }
    }

    fn batch(&mut self) {
        self.batch.clear();
        self.scheduler.copies().for_each(|BlockCopy { from, to }| self.batch.copy(from, to));
        let rows = self.plan.iter().map(|planned| planned.tokens + planned.drafts).sum();
        for planned in &self.plan {
            let running = self.requests.get_mut(&planned.id).expect("planned");
            let cached = self.scheduler.cached(planned.id).unwrap_or(0);
            running.admit(cached, &self.receiver.metrics);
            if let Some(recorder) = running.recorder() {
                let Planned { position, tokens, drafts, .. } = *planned;
                let sequences = self.plan.len();
                recorder.step(TraceStep { position, tokens, drafts, rows, sequences });
            }
            let end = planned.position + planned.tokens;
            let tokens = &self.scheduler.tokens(planned.id)[planned.position..end];
            let drafts = &running.draft[..planned.drafts];
            let blocks = (end + planned.drafts).div_ceil(self.runner.block());
            let table = &self.scheduler.table(planned.id)[..blocks];
            let states = running.wants_states();
            let logits = if states { 0 } else { planned.outputs + planned.drafts };
            self.batch.push_parts([tokens, drafts], planned.position, table, logits);
            self.batch.want_states(if states { planned.outputs } else { 0 });
        }
    }

    fn forward(&mut self) -> Result<(), Error> {
        self.receiver.metrics.working(true);
        self.request_masks();
        self.runner.forward(&self.batch).map(drop)
    }

    /// Has masks computed for the sequences that will be sampled.
    fn request_masks(&mut self) {
        for planned in self.plan.iter().filter(|planned| planned.samples) {
            let running = self.requests.get_mut(&planned.id).expect("planned");
            if let Some(constraint) = running.lend(planned) {
                self.masks.request(constraint);
            }
        }
    }

    /// Takes constraints back from a step that broke. Some of them may break over it.
    fn recall_constraints(&mut self) -> Vec<(SequenceId, End)> {
        let mut broken = Vec::new();
        for planned in self.plan.iter().filter(|planned| planned.samples) {
            let running = self.requests.get_mut(&planned.id).expect("planned");
            if running.is_lent() {
                running.take_back(self.masks.next());
            }
            broken.extend(running.discard_draft().map(|end| (planned.id, end)));
        }
        broken
    }

    fn sample(&mut self) {
        let Self { runner, scheduler, requests, masks, scratch, plan, .. } = self;
        let (vocab, size) = (runner.info().vocab_size, runner.state_size());
        let (mut logits, mut states) = (runner.logits(), runner.states());
        for planned in plan.iter().filter(|planned| planned.outputs > 0) {
            let running = requests.get_mut(&planned.id).expect("planned");
            if running.wants_states() {
                let (rows, rest) = states.split_at(planned.outputs * size);
                states = rest;
                running.take_states(planned, rows.chunks_exact(size));
                continue;
            }
            if running.is_lent() {
                running.take_back(masks.next());
            }
            let (rows, rest) = logits.split_at((planned.outputs + planned.drafts) * vocab);
            logits = rest;
            running.process_logits(
                scheduler.tokens(planned.id),
                planned,
                rows.chunks_exact(vocab),
                scratch,
            );
        }
    }

    fn commit(&mut self) {
        for planned in &self.plan {
            let running = self.requests.get(&planned.id).expect("planned");
            let sampled = if planned.samples { running.sampled() } else { &[] };
            self.scheduler.commit(planned, sampled);
        }
    }

    fn emit(&mut self) {
        for at in 0..self.plan.len() {
            let planned = self.plan[at];
            let running = self.requests.get_mut(&planned.id).expect("planned");
            if running.emit_step(&planned, &self.receiver.metrics) {
                self.remove(planned.id, None);
            }
        }
    }

    /// Ends the sequences that `error` is about: the one whose row it names, or all of the step.
    /// Nothing was committed, so the others are planned again and lose nothing.
    fn fail(&mut self, error: &Error) {
        for (id, end) in self.recall_constraints() {
            self.remove(id, Some(end));
        }
        let row = match error {
            Error::Model(models::Error::NotFinite { row, .. }) => Some(*row),
            _ => None,
        };
        let hit = |rows: &backend::SequenceRows| row.is_none_or(|row| rows.rows.contains(&row));
        let planned = self.plan.iter().zip(self.batch.sequences());
        let broken: Vec<_> =
            planned.filter(|(_, rows)| hit(rows)).map(|(planned, _)| planned.id).collect();
        for id in broken {
            self.remove(id, Some(End::Failed(error.to_string())));
        }
    }

    /// Takes note of a step for the prefill_budget of the next and for those who watch.
    fn record_step(&mut self, took: Duration) {
        let (rows, sequences) = (self.batch.rows(), self.plan.len());
        self.prefill_budget.observe(rows, took);
        self.receiver.metrics.step(Step { rows, sequences, took });
        self.report();
    }

    fn report(&mut self) {
        let metrics = &self.receiver.metrics;
        metrics.load(self.scheduler.running(), self.scheduler.waiting());
        let sched::BlockCounts { used, cached, free } = self.scheduler.blocks();
        metrics.blocks(used, cached, free);
        let (preempted, evicted) = self.scheduler.counters();
        metrics.preempted((preempted - self.reported.0) as usize);
        metrics.evicted((evicted - self.reported.1) as usize);
        self.reported = (preempted, evicted);
    }
}
