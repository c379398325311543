//! The engine thread: drain, plan, batch, launch, land, sample, commit, emit. Where stages of
//! several ranks share the model, it launches further steps before the first lands.
//!
//! Invariant: one thread, no lock but the turn among engines that share the processors, and nothing
//! but the reader's own channel between a sequence and its reader.

use crate::disk::Disk;
use crate::load::block_root::{adapted_space, block_root, long_space};
use crate::load::runner::Runner;
use crate::observe::outcome::Outcome;
use crate::request::fields::Request;
use crate::request::handle::{EngineHandle, RequestReceiver, Submission, request_channel};
use crate::request::led_turn::{LedId, LedMessage};
use crate::step::draft::DraftSources;
use crate::step::draft_planner::DraftPlanner;
use crate::step::embedding_pooler::EmbeddingPooler;
use crate::step::engine_options::EngineOptions;
use crate::step::flights::Flights;
use crate::step::masks::{Masks, SequenceConstraint};
use crate::step::model_drafter::ModelDrafter;
use crate::step::prefill_budget::PrefillBudget;
use crate::step::running_request::{RequestSetup, RunningRequest};
use crate::step::step_sampler::StepSampler;
use crate::step::trace::{Recorder, TraceStep};
use crate::step::turns::{ComputeTurns, Turn, TurnTaker};
use backend::{Batch, BlockCopy, StateRows};
use base::Rng;
use dist::Traffic;
use sched::{NewSequence, Planned, Scheduler, Slot, SlotTable, StateCopy};
use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of the KV cache touched between two checks for requests.
const MAX_TOUCHED: usize = 4 << 20;
/// Time at the end in which blocks are still stored.
pub(super) const LAST_STORES: Duration = Duration::from_secs(10);
/// What the engine does without requests, in a profile.
pub const IDLE: &str = "idle";
/// Pause while all sequences wait for their readers.
const READER_POLL: Duration = Duration::from_millis(2);

/// Starts the engine thread. It ends when the last handle and generation are dropped.
pub fn start(runner: Runner, options: EngineOptions) -> (EngineHandle, JoinHandle<()>) {
    let (handle, receiver) = request_channel(runner.info.clone(), options.queue);
    // Before a reader of the metrics can ask for them.
    let windows: Vec<_> = runner.groups.iter().map(|group| group.window).collect();
    receiver.metrics.groups(&windows);
    receiver.metrics.device_memory(runner.device(), runner.memory_of_both());
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

pub(super) struct Engine {
    pub(super) runner: Runner,
    pub(super) receiver: RequestReceiver,
    pub(super) options: EngineOptions,
    pub(super) scheduler: Scheduler,
    /// Under the slots of the scheduler.
    pub(super) requests: SlotTable<RunningRequest>,
    /// The sequences that their callers lead.
    pub(super) led: HashMap<LedId, Slot>,
    pub(super) masks: Masks,
    pub(super) prefill_budget: PrefillBudget,
    pub(super) drafts: DraftPlanner,
    disk: Option<Disk>,
    turns: Option<TurnTaker>,
    /// Requests accepted so far.
    accepted: u64,
    /// The step that is planned, or lands.
    pub(super) plan: Vec<Planned>,
    pub(super) batch: Batch,
    pub(super) flights: Flights,
    /// When the last step ended, and what was sent to other ranks before, while steps follow each
    /// other.
    pub(super) rank_clock: Option<(Instant, Traffic)>,
    sampler: StepSampler,
    /// Blocks of each group touched so far, counted from the first.
    touched: Vec<usize>,
    /// Preemptions, evictions of blocks and of snapshots that were reported.
    reported: (u64, u64, u64),
}

impl Engine {
    fn new(
        mut runner: Runner,
        receiver: RequestReceiver,
        options: EngineOptions,
        masks: Masks,
    ) -> Self {
        let models::WorkspaceLimits { rows, logit_rows } = runner.limits;
        // Each sequence of a recurrent model takes a slot.
        let most = if runner.states == 0 { logit_rows } else { logit_rows.min(runner.states) };
        let running = options.running.clamp(1, most);
        let in_flight = runner.ranks().in_flight();
        let groups = runner.groups.iter();
        let group = |group: &backend::GroupSize| sched::Group {
            window: group.window,
            blocks: group.blocks,
        };
        let limits = sched::SchedulerLimits {
            running,
            rows,
            logits: logit_rows,
            flights: in_flight,
            block: runner.block(),
            groups: groups.map(group).collect(),
            states: runner.states,
            state_every: runner.state_every,
        };
        let words = runner.info.vocab_size;
        let model = runner
            .take_draft_model()
            .map(|draft| ModelDrafter::new(*draft, running, words, options.itl_target));
        Self {
            scheduler: Scheduler::new(limits, block_root(&runner.settings, runner.block())),
            batch: runner.batch(),
            flights: Flights::new(in_flight, running, || runner.batch()),
            rank_clock: None,
            sampler: StepSampler::new(runner.info.vocab_size, running, runner.threads()),
            requests: SlotTable::default(),
            led: HashMap::new(),
            masks,
            prefill_budget: match PrefillBudget::new(options.itl_target, runner.chunk) {
                budget if runner.stream_stats().is_some() => budget.streamed(),
                budget => budget,
            },
            drafts: DraftPlanner::new(&runner, model, running, &options),
            disk: options
                .disk
                .clone()
                .and_then(|disk| Disk::new(disk, &mut runner, &receiver.metrics)),
            turns: options.turns.as_ref().map(ComputeTurns::join),
            accepted: 0,
            plan: Vec::with_capacity(running),
            touched: vec![0; runner.groups.len()],
            reported: (0, 0, 0),
            options,
            receiver,
            runner,
        }
    }

    fn run(mut self) {
        // Where engines come and go, requests wait for them already.
        let alone = self.turns.is_none();
        self.touch_cache_ahead(|engine| alone || engine.receiver.submissions.is_empty());
        self.prepare_weights_ahead();
        self.measure_steps();
        while self.drain() {
            if let Err(error) = self.step()
                && !self.fail(&error)
            {
                // All other requests end with this thread.
                return;
            }
        }
        if let Some(disk) = &mut self.disk {
            disk.finish(&mut self.scheduler, &mut self.runner, LAST_STORES);
        }
    }

    /// Waits for the turn among engines that share the processors; returns it with the time waited.
    pub(super) fn take_turn(&mut self) -> (Option<Turn>, Duration) {
        let Some(turns) = &self.turns else { return (None, Duration::ZERO) };
        self.runner.begin(IDLE);
        let start = Instant::now();
        (Some(turns.take()), start.elapsed())
    }

    /// Whether other engines that share the processors have work.
    pub(super) fn others_work(&self) -> bool {
        self.turns.as_ref().is_some_and(TurnTaker::others_work)
    }

    /// Leaves the turns to other engines, until there is work.
    pub(super) fn rest(&self) {
        if let Some(turns) = &self.turns {
            turns.rest();
        }
    }

    /// Copies blocks to the store and from it.
    pub(super) fn work_on_disk(&mut self) {
        let Self { disk: Some(disk), scheduler, runner, prefill_budget, .. } = self else { return };
        disk.work(scheduler, runner, prefill_budget.row());
    }

    /// Accepts new requests and removes aborted ones. Waits while there is nothing else to do;
    /// returns false at the end.
    fn drain(&mut self) -> bool {
        self.runner.begin("drain");
        if self.scheduler.is_idle() {
            self.rank_clock = None;
            self.runner.begin(IDLE);
            self.report();
            self.receiver.metrics.working(false);
            self.rest();
            self.prepare_weights_ahead();
            self.touch_cache_ahead(|engine| engine.receiver.submissions.is_empty());
            self.store_while_idle();
            match self.receiver.submissions.blocking_recv() {
                Some(submission) => {
                    self.runner.begin("drain");
                    self.accept(submission);
                }
                None => return false,
            }
        }
        while let Ok(submission) = self.receiver.submissions.try_recv() {
            self.accept(submission);
        }
        self.remove_aborted();
        true
    }

    /// Prepares weights that no product has used yet, until the next request comes, or another
    /// engine has work.
    fn prepare_weights_ahead(&mut self) {
        let is_idle = |engine: &Self| {
            let submissions = &engine.receiver.submissions;
            submissions.is_empty() && !submissions.is_closed() && !engine.others_work()
        };
        while is_idle(self) && self.runner.prepare_weights() {}
        if let Some(mut model) = self.drafts.model.take() {
            while is_idle(self) && model.prepare_weights() {}
            self.drafts.model = Some(model);
        }
        // It is no part of a step.
        self.runner.take_prepared();
    }

    /// Stores what is to be stored until the next request comes.
    fn store_while_idle(&mut self) {
        let Self { disk: Some(disk), scheduler, runner, prefill_budget, receiver, .. } = self
        else {
            return;
        };
        let is_idle = || receiver.submissions.is_empty() && !receiver.submissions.is_closed();
        disk.keep_idle(scheduler, runner, prefill_budget.row(), is_idle);
    }

    /// Touches the memory of the blocks that are taken next, while `may_go_on`.
    fn touch_cache_ahead(&mut self, may_go_on: impl Fn(&Self) -> bool) {
        let total: usize = self.runner.blocks().sum();
        let block = (self.runner.memory().cache / total).max(1);
        for group in 0..self.touched.len() {
            let blocks = self.runner.groups[group].blocks;
            let sched::BlockCounts { used, cached, .. } = self.scheduler.blocks(group);
            let ahead = self.options.cache_ahead / block * blocks / total;
            let goal = (used + cached + ahead).min(blocks);
            while self.touched[group] < goal && may_go_on(self) {
                let end = (self.touched[group] + MAX_TOUCHED.div_ceil(block)).min(goal);
                self.runner.touch_cache(group, self.touched[group]..end);
                self.touched[group] = end;
            }
        }
    }

    /// Accepts a submission and what comes with it.
    fn accept(&mut self, mut submission: Submission) {
        let together = std::mem::take(&mut submission.together);
        self.accept_one(submission);
        together.into_iter().for_each(|submission| self.accept_one(submission));
    }

    fn accept_one(&mut self, mut submission: Submission) {
        let led = match submission.led.take() {
            None => None,
            Some(LedMessage::Begin(beginning)) => Some(beginning),
            Some(LedMessage::Continue(id, turn)) => {
                return self.continue_led(id, turn, &submission.request.prompt);
            }
        };
        let Self { runner, options, .. } = self;
        let (number, info, request) = (self.accepted, &runner.info, &mut submission.request);
        self.accepted += 1;
        request.sampling.seed.get_or_insert_with(Rng::entropy_seed);
        // What replays compare are answers.
        let traced = options.traces.is_some() && !request.has_no_answer() && led.is_none();
        let adapters = request.adapters.get_or_insert_with(|| runner.adapters().clone()).clone();
        let setup = RequestSetup {
            drafts: DraftSources::of(request, options.speculate, led.is_some()),
            timeout: request.timeout.or(options.timeout).filter(|_| led.is_none()),
            constraint: SequenceConstraint::of(request, info.vocab_size),
            pooler: request.embed.map(|embed| EmbeddingPooler::new(embed, &runner.embedding)),
            recorder: traced.then(|| Recorder::new(runner, request, number)),
            led,
        };
        let prompt = std::mem::take(&mut request.prompt);
        let budget = request.budget(info.context_length - prompt.len());
        let capacity = led.map_or(prompt.len() + budget, |led| led.capacity);
        let is_empty = led.is_none() && budget == 0 && !request.wants_prompt();
        let Request { priority, tenant, user, space, cold, .. } = *request;
        let known = led.map_or(request.known(), |led| led.known);
        let marks = std::mem::take(&mut request.marks);
        let running = RunningRequest::new(submission, setup);
        let space = adapted_space(space, &adapters);
        let space = if runner.is_long(capacity) { long_space(space) } else { space };
        let slot = self.scheduler.add(NewSequence {
            capacity,
            prompt,
            priority,
            tenant,
            user,
            space,
            cold,
            whole: runner.is_encoder(),
            marks,
            output: running.prompt_output(),
            known,
        });
        self.requests.insert(slot, running);
        self.begin_led(led, slot);
        if let Some(disk) = &mut self.disk {
            disk.accepted(slot);
        }
        if is_empty {
            self.remove(slot, Some(Outcome::Length));
        }
    }

    /// Removes requests that their caller has dropped or that have exceeded their time limit.
    fn remove_aborted(&mut self) {
        for slot in self.requests.slots() {
            let running = self.requests.get(slot);
            if let Some(outcome) = running.and_then(RunningRequest::abort_reason) {
                self.remove(slot, Some(outcome));
            }
        }
    }

    /// Removes a request, unless it is removed already, and reports its end. A request that is part
    /// of a step under way is removed after it.
    pub(super) fn remove(&mut self, slot: Slot, abort: Option<Outcome>) {
        if self.scheduler.is_flying(slot) {
            return self.flights.end_later(slot, abort);
        }
        let Some(running) = self.requests.remove(slot) else { return };
        if let Some(id) = running.led_id() {
            self.led.remove(&id);
        }
        if let Some(disk) = &mut self.disk {
            disk.ending(&self.scheduler, slot, running.is_stored());
        }
        let sequence = self.scheduler.sequence(slot);
        self.drafts.remember(&running, sequence);
        self.drafts.end(slot);
        running.finish(abort, sequence, &self.receiver.metrics, self.options.traces.as_ref());
        self.scheduler.finish(slot);
    }

    pub(super) fn plan(&mut self) {
        // Readers read concurrently, so readiness is taken once for the whole plan.
        for (slot, running) in self.requests.iter() {
            let is_held = self.disk.as_ref().is_some_and(|disk| disk.holds(slot));
            let is_held = is_held || self.flights.is_ending(slot);
            self.scheduler.set_ready(slot, running.is_ready() && !is_held);
        }
        self.drafts.offer(&mut self.runner, &mut self.scheduler, &mut self.requests);
        // Other engines may decode too, and wait for this step.
        let others = usize::from(self.others_work());
        let prompt = self.prefill_budget.prompt(self.scheduler.all_decoding() + others);
        let before = self.scheduler.counters().0;
        self.scheduler.plan(prompt, &mut self.plan);
        if self.plan.is_empty() && prompt == 0 && self.flights.is_empty() {
            // What decodes waits for its readers.
            self.scheduler.plan(self.runner.chunk, &mut self.plan);
        }
        self.group_adapters();
        if self.scheduler.counters().0 > before {
            self.note_preempted();
        }
    }

    /// Has what was computed of preempted sequences stored.
    pub(super) fn note_preempted(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        for (slot, running) in self.requests.iter() {
            if self.scheduler.is_preempted(slot) && running.is_stored() {
                disk.preempted(&self.scheduler, slot);
            }
        }
    }

    /// Brings rows with the same adapters together, so that their factors are read once.
    fn group_adapters(&mut self) {
        let Self { plan, requests, .. } = self;
        let key = |planned: &Planned| (requests[planned.slot].adapter_key(), planned.slot.0);
        if plan.iter().any(|planned| !requests[planned.slot].adapters().is_empty()) {
            plan.sort_unstable_by_key(key);
        }
    }

    /// Pauses while all sequences wait for their readers.
    pub(super) fn wait_for_readers(&mut self) {
        self.runner.begin(IDLE);
        self.report();
        self.receiver.metrics.working(false);
        self.rest();
        match &mut self.disk {
            Some(disk) if disk.is_restoring() => disk.wait(READER_POLL),
            _ if !self.scheduler.is_idle() => std::thread::sleep(READER_POLL),
            _ => {}
        }
    }

    pub(super) fn batch(&mut self) {
        self.batch.clear();
        for sched::BlockCopy { group, from, to } in self.scheduler.copies() {
            self.batch.copy(BlockCopy { group, from, to });
        }
        for StateCopy { from, to } in self.scheduler.state_copies() {
            self.batch.copy_state(from, to);
        }
        let rows = self.plan.iter().map(|planned| planned.tokens + planned.drafts).sum();
        for planned in &self.plan {
            let running = &mut self.requests[planned.slot];
            let sequence = self.scheduler.sequence(planned.slot);
            running.admit(sequence, &self.receiver.metrics);
            if let Some(recorder) = &mut running.recorder {
                let Planned { position, tokens, drafts, .. } = *planned;
                let sequences = self.plan.len();
                recorder.step(TraceStep { position, tokens, drafts, rows, sequences });
            }
            let end = planned.position + planned.tokens;
            let tokens = &sequence.tokens[planned.position..end];
            let blocks = (end + planned.drafts).div_ceil(self.runner.block());
            let hidden = running.wants_hidden();
            let logits = if hidden { 0 } else { planned.outputs + planned.drafts };
            self.batch.push([tokens, running.draft.planned(planned)], planned.position, logits);
            self.batch.follow(&sequence.tokens[..planned.position]);
            if !running.types().is_empty() {
                self.batch.types(&running.types()[planned.position..end]);
            }
            self.batch.adapt(running.adapters());
            if self.runner.is_long(sequence.capacity) {
                self.batch.mark_long();
            }
            sequence.tables.iter().for_each(|table| self.batch.table(&table[..blocks]));
            self.batch.want_hidden(if hidden { planned.outputs } else { 0 });
            let Some(slot) = sequence.state else { continue };
            let Planned { right, drafts: guesses, .. } = *planned;
            self.batch.state(StateRows { slot, right, guesses });
            let saves = self.scheduler.saves(planned);
            saves.for_each(|save| self.batch.save(save.position, save.state));
        }
    }

    /// Starts the masks of the sequences that will be sampled.
    pub(super) fn request_masks(&mut self) {
        for planned in self.plan.iter().filter(|planned| planned.samples) {
            if let Some(constraint) = self.requests[planned.slot].lend_constraint(planned) {
                self.masks.request(constraint);
            }
        }
    }

    pub(super) fn sample(&mut self) {
        let Self { runner, scheduler, requests, masks, sampler, plan, drafts, .. } = self;
        let (mut hidden, size) = (runner.hidden(), runner.info.hidden_size);
        for planned in plan.iter().filter(|planned| planned.outputs > 0) {
            let running = &mut requests[planned.slot];
            if running.wants_hidden() {
                let (rows, rest) = hidden.split_at(planned.outputs * size);
                hidden = rest;
                running.add_hidden(planned, rows.chunks_exact(size));
                continue;
            }
            running.constraint.take_back(masks);
            let running = requests.remove(planned.slot).expect("a planned request runs");
            sampler.push(*planned, running);
        }
        sampler.run(runner, scheduler);
        for (slot, mut running) in sampler.drain() {
            drafts.learn(&mut running);
            requests.insert(slot, running);
        }
    }

    pub(super) fn commit(&mut self) {
        for planned in &self.plan {
            let running = &self.requests[planned.slot];
            let sampled = if planned.samples { running.sampled() } else { &[] };
            self.scheduler.commit(planned, sampled);
            if let Some(disk) = self.disk.as_mut().filter(|_| running.is_stored()) {
                disk.computed(&self.scheduler, planned.slot);
            }
        }
    }

    pub(super) fn emit(&mut self) {
        for at in 0..self.plan.len() {
            let planned = self.plan[at];
            if self.flights.is_ending(planned.slot) {
                continue;
            }
            let sequence = self.scheduler.sequence(planned.slot);
            let running = &mut self.requests[planned.slot];
            if running.emit_step(sequence, &planned, &self.receiver.metrics) {
                self.remove(planned.slot, None);
            } else if planned.samples && running.led_id().is_some() {
                self.scheduler.wait(planned.slot);
            }
        }
        self.end_ending();
    }

    /// Removes the requests that end and are part of no step any more.
    pub(super) fn end_ending(&mut self) {
        while let Some((slot, outcome)) = self.flights.next_ended(&self.scheduler) {
            self.remove(slot, outcome);
        }
    }

    pub(super) fn report(&mut self) {
        let metrics = &self.receiver.metrics;
        metrics.load(self.scheduler.running(), self.scheduler.waiting());
        for group in 0..self.runner.groups.len() {
            let sched::BlockCounts { used, cached, free } = self.scheduler.blocks(group);
            metrics.blocks(group, used, cached, free);
        }
        self.drafts.report(metrics);
        let sched::StateCounts { live, kept, free, evictions } = self.scheduler.state_counts();
        metrics.states(live, kept, free);
        let (preempted, evicted) = self.scheduler.counters();
        metrics.preempted((preempted - self.reported.0) as usize);
        metrics.evicted((evicted - self.reported.1) as usize);
        metrics.states_evicted((evictions - self.reported.2) as usize);
        self.reported = (preempted, evicted, evictions);
        if let Some(stats) = self.runner.stream_stats() {
            metrics.weights(stats);
        }
        if let Some(stats) = self.runner.table_stats() {
            metrics.tables(stats);
        }
    }
}
