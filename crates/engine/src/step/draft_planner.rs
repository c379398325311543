//! The drafts of a step: what is drafted for each sequence, and how much of it is verified.

use crate::load::runner::Runner;
use crate::observe::drafter::{Drafter, MAX_DRAFTED};
use crate::observe::metrics::Metrics;
use crate::step::depth_drafter::{Candidate, DepthDrafter};
use crate::step::draft::{Acceptance, DraftMemory, MAX_COMPARED, OfferedDraft, best_number};
use crate::step::engine_options::EngineOptions;
use crate::step::layer_drafter::LayerDrafter;
use crate::step::model_drafter::ModelDrafter;
use crate::step::running_request::RunningRequest;
use crate::step::step_cost::StepCost;
use sched::{BlockCounts, Scheduler, Slot, SlotTable, View};
use std::time::Duration;

/// Steps in which drafts that are likely to come out were not verified, after which some are, to
/// find out whether rows are still as costly: at first, and at most.
const MIN_WAIT: usize = 32;
const MAX_WAIT: usize = 1024;
/// Drafts that are verified then, and trials that follow one that was right.
const TRIED: usize = 3;
/// Probability of all drafts of a sequence from which layers or a model draft a further one.
const WORTH_MORE: f32 = 0.3;
/// Probability from which a draft is likely to come out.
const LIKELY: f32 = 0.7;

/// Drafts tokens and chooses how many of them a step verifies.
#[derive(Debug)]
pub(crate) struct DraftPlanner {
    pub cost: StepCost,
    /// The acceptance in all sequences.
    acceptance: Acceptance,
    memory: DraftMemory,
    /// The model's own layers, where it has some.
    pub layers: Option<Box<LayerDrafter>>,
    /// Steps in which these could have drafted and were not expected to pay.
    without_layers: Retry,
    /// The second model that drafts, if there is one.
    pub model: Option<Box<ModelDrafter>>,
    /// The same of its steps.
    without_model: Retry,
    /// Workspace: the drafts of a step, and the sequences that decode.
    offered: Vec<OfferedDraft>,
    decoding: Vec<(Slot, usize)>,
    /// Steps without the likely drafts that they had.
    without: Retry,
    /// Whether all that may be drafted is, and verified.
    always: bool,
}

/// Steps in which something did not pay, after which it is tried again: each time after twice as
/// many.
#[derive(Debug)]
struct Retry {
    steps: usize,
    wait: usize,
    /// Steps in which it may be tried once more, as the last trial was right.
    again: usize,
}

impl Retry {
    fn new() -> Self {
        Self { steps: 0, wait: MIN_WAIT, again: 0 }
    }

    /// Counts a step, and says whether it is to be tried now.
    fn is_due(&mut self) -> bool {
        self.steps += 1;
        let is_due = self.steps >= self.wait;
        if is_due {
            (self.steps, self.wait) = (0, (2 * self.wait).min(MAX_WAIT));
            self.again = TRIED;
        }
        is_due
    }

    /// Whether it is to be tried once more after a trial that was right, so that what is good is
    /// soon known.
    fn is_due_again(&mut self, was_right: bool) -> bool {
        let is_due = was_right && self.again > 0;
        self.again -= usize::from(is_due);
        is_due
    }
}

impl DraftPlanner {
    /// A planner for `running` sequences of a model, and of a second one, if there is one.
    pub fn new(
        runner: &Runner,
        model: Option<ModelDrafter>,
        running: usize,
        options: &EngineOptions,
    ) -> Self {
        Self {
            always: options.drafts_always,
            cost: StepCost::new(),
            acceptance: Acceptance::default(),
            memory: DraftMemory::new(options.draft_memory),
            layers: LayerDrafter::new(runner, running).map(Box::new),
            without_layers: Retry::new(),
            model: model.map(Box::new),
            without_model: Retry::new(),
            offered: Vec::with_capacity(running * MAX_DRAFTED),
            decoding: Vec::with_capacity(running),
            without: Retry::new(),
        }
    }

    /// Drafts tokens for the sequences that decode, and offers the best number of them.
    pub fn offer(
        &mut self,
        runner: &mut Runner,
        scheduler: &mut Scheduler,
        requests: &mut SlotTable<RunningRequest>,
    ) {
        let least = self.find(scheduler, requests);
        let mut number = self.best_number(least, 0.0);
        let layers = self.draft_with(layers_of, runner, (scheduler, requests), (least, number));
        if layers > 0.0 {
            number = self.best_number(least, layers);
        }
        let model = self.draft_with(model_of, runner, (scheduler, requests), (least, number));
        if model > 0.0 {
            number = self.best_number(least, layers + model);
        }
        let number = if self.always { self.offered.len() } else { self.sometimes_some(number) };
        for draft in &self.offered[..number] {
            self.decoding[draft.sequence].1 += 1;
        }
        // Others may have drafts of a step before.
        requests.iter().for_each(|(slot, _)| scheduler.offer_drafts(slot, 0));
        self.decoding.iter().for_each(|(slot, drafts)| scheduler.offer_drafts(*slot, *drafts));
    }

    /// Drafts from texts. Returns the rows and the expected tokens of a step that verifies none of
    /// what is offered.
    fn find(
        &mut self,
        scheduler: &Scheduler,
        requests: &mut SlotTable<RunningRequest>,
    ) -> (usize, f64) {
        self.offered.clear();
        self.decoding.clear();
        self.layers.iter_mut().for_each(|layers| layers.begin());
        self.model.iter_mut().for_each(|model| model.begin(scheduler));
        let (mut rows, mut tokens) = (0, 0.0);
        for (sequence, slot) in scheduler.decoding().enumerate() {
            let running = &mut requests[slot];
            running.find_draft(scheduler.sequence(slot), &mut self.memory);
            let draft = &running.draft;
            let fixed = if draft.is_fixed() { draft.tokens().len() } else { 0 };
            (rows, tokens) = (rows + 1 + fixed, tokens + 1.0);
            for (at, chance) in draft.chances(&self.acceptance).enumerate() {
                if at < fixed {
                    tokens += f64::from(chance);
                } else {
                    self.offered.push(OfferedDraft { chance, sequence });
                }
            }
            if let Some(layers) = self.layers.as_mut().filter(|_| draft.wants_layers()) {
                layers.add(slot, sequence);
            } else if let Some(model) = self.model.as_mut().filter(|_| draft.wants_model()) {
                model.add(slot, sequence, scheduler.sequence(slot));
            }
            self.decoding.push((slot, fixed));
        }
        (rows, tokens)
    }

    /// The best number of the offered drafts, with `spent` seconds taken for them.
    fn best_number(&mut self, least: (usize, f64), spent: f64) -> usize {
        self.offered.sort_unstable_by(|a, b| b.chance.total_cmp(&a.chance));
        best_number(&self.offered, least, |rows| spent + self.cost.seconds(rows))
    }

    /// Drafts with the drafter that `of` names, if there is one, as [`draft_by`](Self::draft_by).
    fn draft_with<D: DepthDrafter>(
        &mut self,
        of: fn(&mut Self) -> Tried<'_, D>,
        runner: &mut Runner,
        requests: (&Scheduler, &mut SlotTable<RunningRequest>),
        best: ((usize, f64), usize),
    ) -> f64 {
        let (drafter, without) = of(self);
        let Some(mut drafter) = drafter.take() else { return 0.0 };
        let mut without = std::mem::replace(without, Retry::new());
        let spent = self.draft_by(&mut *drafter, &mut without, runner, requests, best);
        let (place, waits) = of(self);
        (*place, *waits) = (spent.is_some().then_some(drafter), without);
        spent.unwrap_or_default()
    }

    /// Drafts token by token while that is expected to give more tokens for the time than a step
    /// that verifies the `number` best drafts so far. Returns the seconds that it is known to take;
    /// `None` if the device fails.
    fn draft_by(
        &mut self,
        drafter: &mut dyn DepthDrafter,
        without: &mut Retry,
        runner: &mut Runner,
        (scheduler, requests): (&Scheduler, &mut SlotTable<RunningRequest>),
        ((rows, tokens), number): ((usize, f64), usize),
    ) -> Option<f64> {
        let chances: f64 = self.offered[..number].iter().map(|it| f64::from(it.chance)).sum();
        let (mut rows, mut tokens, mut spent) = (rows + number, tokens + chances, 0.0);
        let came = std::mem::take(&mut self.acceptance.came);
        let (cost, all) = (&self.cost, &self.acceptance);
        for depth in 0..drafter.most(runner) {
            let count = drafter.candidates().len();
            if count == 0 {
                break;
            }
            let expected = |it: &Candidate| it.chance * requests[it.slot].draft.expected(all.share);
            let more: f64 = drafter.candidates().iter().map(|it| f64::from(expected(it))).sum();
            let takes = drafter.cost().seconds(drafter.rows(depth));
            let rate = tokens / (spent + cost.seconds(rows));
            let pays = (tokens + more) / (spent + takes + cost.seconds(rows + count)) > rate;
            match depth {
                _ if self.always => {}
                0 if pays => *without = Retry::new(),
                0 if without.is_due() || drafter.is_on_trial() => drafter.begin_trial(),
                0 if without.is_due_again(came) => drafter.begin_trial(),
                _ if pays => {}
                _ => break,
            }
            if let Err(error) = drafter.draft(runner, scheduler, requests, depth) {
                tracing::warn!("no further tokens are drafted by {}: {error}", drafter.name());
                return None;
            }
            let (batch, step) = (drafter.cost().seconds(count), cost.seconds(rows));
            tracing::debug!(depth, count, batch, step, "{} drafted", drafter.name());
            let before = rows;
            for Candidate { slot, sequence, chance, .. } in drafter.candidates() {
                let Some(now) = requests[*slot].draft.chances(all).nth(depth) else { continue };
                self.offered.push(OfferedDraft { chance: now, sequence: *sequence });
                (rows, tokens, *chance) = (rows + 1, tokens + f64::from(now), now);
            }
            // Prompts alone say nothing of what drafts take.
            spent += if rows > before { takes } else { 0.0 };
            let worth = if self.always { 0.0 } else { WORTH_MORE };
            drafter.candidates().retain(|it| it.is_open && it.chance >= worth);
        }
        Some(spent)
    }

    /// The number of drafts to verify if `best` is the best: now and then some more than none.
    fn sometimes_some(&mut self, best: usize) -> usize {
        let likely = self.offered.iter().take(TRIED).filter(|it| it.chance >= LIKELY).count();
        if best > 0 {
            self.without = Retry::new();
        } else if likely > 0 && self.without.is_due() {
            return likely;
        }
        best
    }

    /// Whether layers of the model or a second model may compute what is drafted.
    pub fn computes(&self) -> bool {
        self.layers.is_some() || self.model.is_some()
    }

    /// Time that they took in this step.
    pub fn took(&self) -> Duration {
        let layers = self.layers.as_ref().map_or(Duration::ZERO, |it| it.took);
        layers + self.model.as_ref().map_or(Duration::ZERO, |it| it.took)
    }

    /// Reports the blocks of the second model, and what a drafted token takes of the time of a step
    /// of one row, where both are known.
    pub fn report(&self, metrics: &Metrics) {
        if let Some(model) = &self.model {
            let BlockCounts { used, cached, free } = model.blocks();
            metrics.draft_blocks(used, cached, free);
        }
        let Some(step) = self.cost.known_seconds(1) else { return };
        let layers = self.layers.iter().map(|it| (it.drafter, &it.cost));
        let model = self.model.iter().map(|it| (Drafter::Model, &it.cost));
        for (drafter, cost) in layers.chain(model) {
            cost.known_seconds(1).into_iter().for_each(|it| metrics.draft_cost(drafter, it / step));
        }
    }

    /// Releases what the second model has of a sequence that ends.
    pub fn end(&mut self, slot: Slot) {
        self.model.iter_mut().for_each(|model| model.end(slot));
    }

    /// Learns from the tokens that a step has given a request.
    pub fn learn(&mut self, running: &mut RunningRequest) {
        running.learn_from_draft(&mut self.acceptance);
    }

    /// Remembers the text of a request that ends, without what was in the cache before it, which is
    /// the text of earlier requests.
    pub fn remember(&mut self, running: &RunningRequest, sequence: View<'_>) {
        if running.draft.is_remembered() {
            let known = sequence.cached().saturating_sub(MAX_COMPARED);
            self.memory.add(running.draft.space(), &sequence.tokens[known..]);
        }
    }
}

/// A drafter, and the steps in which it could have drafted and was not expected to pay.
type Tried<'a, D> = (&'a mut Option<Box<D>>, &'a mut Retry);

fn layers_of(planner: &mut DraftPlanner) -> Tried<'_, LayerDrafter> {
    (&mut planner.layers, &mut planner.without_layers)
}

fn model_of(planner: &mut DraftPlanner) -> Tried<'_, ModelDrafter> {
    (&mut planner.model, &mut planner.without_model)
}
