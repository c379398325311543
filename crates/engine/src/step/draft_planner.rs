//! The drafts of a step: what is drafted for each sequence, and how much of it is verified.

use crate::observe::drafter::MAX_DRAFTED;
use crate::step::draft::{Acceptance, DraftMemory, MAX_COMPARED, OfferedDraft, best_number};
use crate::step::running_request::RunningRequest;
use crate::step::step_cost::StepCost;
use sched::{Scheduler, Slot, SlotTable, View};

/// Steps in which drafts that are likely to come out were not verified, after which some are, to
/// find out whether rows are still as costly: at first, and at most.
const MIN_WAIT: usize = 32;
const MAX_WAIT: usize = 1024;
/// Drafts that are verified then.
const TRIED: usize = 3;
/// Probability from which a draft is likely to come out.
const LIKELY: f32 = 0.7;

/// Drafts tokens and chooses how many of them a step verifies.
#[derive(Debug)]
pub(crate) struct DraftPlanner {
    pub cost: StepCost,
    /// The acceptance in all sequences.
    acceptance: Acceptance,
    memory: DraftMemory,
    /// Workspace: the drafts of a step, and the sequences that decode.
    offered: Vec<OfferedDraft>,
    decoding: Vec<(Slot, usize)>,
    /// Steps without the likely drafts that they had, and after how many some are verified.
    without: usize,
    wait: usize,
}

impl DraftPlanner {
    /// A planner for `running` sequences, which remembers texts of `memory` bytes.
    pub fn new(running: usize, memory: usize) -> Self {
        Self {
            cost: StepCost::new(),
            acceptance: Acceptance::default(),
            memory: DraftMemory::new(memory),
            offered: Vec::with_capacity(running * MAX_DRAFTED),
            decoding: Vec::with_capacity(running),
            without: 0,
            wait: MIN_WAIT,
        }
    }

    /// Drafts tokens for the sequences that decode, and offers the best number of them.
    pub fn offer(&mut self, scheduler: &mut Scheduler, requests: &mut SlotTable<RunningRequest>) {
        self.offered.clear();
        self.decoding.clear();
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
            self.decoding.push((slot, fixed));
        }
        self.offered.sort_unstable_by(|a, b| b.chance.total_cmp(&a.chance));
        let number = best_number(&self.offered, (rows, tokens), |rows| self.cost.seconds(rows));
        let number = self.sometimes_some(number);
        for draft in &self.offered[..number] {
            self.decoding[draft.sequence].1 += 1;
        }
        // Others may have drafts of a step before.
        requests.iter().for_each(|(slot, _)| scheduler.offer_drafts(slot, 0));
        self.decoding.iter().for_each(|(slot, drafts)| scheduler.offer_drafts(*slot, *drafts));
    }

    /// The number of drafts to verify if `best` is the best: now and then some more than none.
    fn sometimes_some(&mut self, best: usize) -> usize {
        let likely = self.offered.iter().take(TRIED).filter(|it| it.chance >= LIKELY).count();
        if best > 0 {
            (self.without, self.wait) = (0, MIN_WAIT);
        } else if likely > 0 {
            self.without += 1;
            if self.without >= self.wait {
                (self.without, self.wait) = (0, (2 * self.wait).min(MAX_WAIT));
                return likely;
            }
        }
        best
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
