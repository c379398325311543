//! Admission, planning of steps, and what becomes of them.

use crate::name::Name;
use crate::pool::{BlockCounts, BlockPool};
use crate::sequence::{BlockCopy, BlockGeometry, Match, NewSequence, Sequence, SequenceId};
use crate::waiting::{QueueIndex, Waiting};

/// What a scheduler works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Sequences running at once.
    pub running: usize,
    /// Rows of a step.
    pub rows: usize,
    /// Rows of a step whose logits can be had; at least `running`.
    pub logits: usize,
    /// Positions of a KV block.
    pub block: usize,
    /// Blocks of the KV cache.
    pub blocks: usize,
    /// Positions that a row sees at most, where that is true of every layer: blocks behind it are
    /// let go.
    pub window: Option<usize>,
}

/// Work of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Whose.
    pub id: SequenceId,
    /// Position of the first row.
    pub position: usize,
    /// Rows of known tokens.
    pub tokens: usize,
    /// Rows behind them for drafted tokens.
    pub drafts: usize,
    /// Rows of known tokens whose results are wanted: the last ones.
    pub outputs: usize,
    /// Whether the last of the known tokens is the sequence's newest, so that a token can be
    /// sampled from its logits, and one more from those of each draft that turns out right.
    pub samples: bool,
}

/// What a step may hold besides a row for each sequence that decodes.
#[derive(Clone, Copy, Debug)]
struct StepBudget {
    prompt: usize,
    drafts: usize,
    /// Rows of logits besides one for each sequence.
    logits: usize,
}

/// Continuous batching over a pool of KV blocks.
#[derive(Clone, Debug)]
pub struct Scheduler {
    limits: SchedulerLimits,
    geometry: BlockGeometry,
    pool: BlockPool,
    waiting: Waiting,
    /// By rank, first come first served within a priority.
    running: Vec<Sequence>,
    arrivals: u64,
    preemptions: u64,
    /// Blocks to be copied, in this order.
    copies: Vec<BlockCopy>,
    /// Room for what a plan works on.
    ids: Vec<SequenceId>,
    candidates: Vec<QueueIndex>,
}

impl Scheduler {
    /// A scheduler over empty blocks. `root` names what besides tokens changes the numbers.
    pub fn new(limits: SchedulerLimits, root: Name) -> Self {
        let SchedulerLimits { running, rows, logits, block, blocks, window } = limits;
        assert!(running > 0 && block > 0 && blocks > 0, "{limits:?}");
        assert!(running <= logits && logits <= rows, "every sequence can decode: {limits:?}");
        assert!(window != Some(0), "a row that sees itself");
        Self {
            limits,
            geometry: BlockGeometry { block, window, root },
            pool: BlockPool::new(blocks),
            waiting: Waiting::default(),
            running: Vec::with_capacity(running),
            arrivals: 0,
            preemptions: 0,
            copies: Vec::with_capacity(running),
            ids: Vec::with_capacity(running),
            candidates: Vec::new(),
        }
    }

    /// Most tokens a sequence can ever have.
    pub fn capacity(&self) -> usize {
        self.limits.blocks * self.limits.block
    }

    /// Queues a sequence. It must fit into the pool when it is alone.
    pub fn add(&mut self, new: NewSequence) {
        assert!(new.capacity <= self.capacity(), "it can fit");
        self.arrivals += 1;
        self.waiting.add(Sequence::new(new, self.arrivals, &self.geometry));
    }

    /// Sequences that are not running, preempted ones among them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that are running.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.len() == 0 && self.running.is_empty()
    }

    /// Running sequences of which one token is to be computed next.
    pub fn decoding(&self) -> impl Iterator<Item = SequenceId> {
        self.running.iter().filter(|s| s.pending() == 1).map(|s| s.id)
    }

    /// How many blocks are what.
    pub fn blocks(&self) -> BlockCounts {
        self.pool.count()
    }

    /// Sequences preempted, and cached blocks evicted, since the beginning.
    pub fn counters(&self) -> (u64, u64) {
        (self.preemptions, self.pool.evictions())
    }

    /// Prompt and generated tokens of a sequence that waits or runs.
    pub fn tokens(&self, id: SequenceId) -> &[u32] {
        &self.find(id).expect("it waits or runs").tokens
    }

    /// The block table of a running sequence. Blocks that no row looks at any more are
    /// `u32::MAX`.
    pub fn table(&self, id: SequenceId) -> &[u32] {
        &self.find(id).expect("it waits or runs").table
    }

    /// Takes what the plans so far want copied: in this order, before anything of the last plan is
    /// computed. A block that is read may be empty, taken or written by a later copy already.
    pub fn copies(&mut self) -> impl Iterator<Item = BlockCopy> {
        self.copies.drain(..)
    }

    /// Prompt tokens that were found in the cache when the sequence was first admitted; `None`
    /// before.
    pub fn cached(&self, id: SequenceId) -> Option<usize> {
        self.find(id).and_then(|sequence| sequence.cached)
    }

    fn find(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().chain(self.waiting.iter()).find(|s| s.id == id)
    }

    fn index(&self, id: SequenceId) -> Option<usize> {
        self.running.iter().position(|s| s.id == id)
    }

    /// Fills `plan` with the next step: a row for each sequence that decodes and as many drafts as
    /// there is room for of the `drafts` it has, then chunks of prompts, in order of rank, of at
    /// most `prompt` tokens together. Sequences for which `ready` is false stay as they are, but
    /// may be preempted.
    pub fn plan(
        &mut self,
        prompt: usize,
        ready: impl Fn(SequenceId) -> bool,
        drafts: impl Fn(SequenceId) -> usize,
        plan: &mut Vec<Planned>,
    ) {
        plan.clear();
        let decoding = self.decoding().filter(|&id| ready(id)).count();
        let spare = self.limits.rows - decoding;
        let prompt = prompt.min(spare);
        // Whoever is admitted or ends its prompt now wants logits too.
        let logits = self.limits.logits - self.limits.running;
        let mut budget = StepBudget { prompt, drafts: logits.min(spare - prompt), logits };
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(self.running.iter().map(|s| s.id));
        for &id in ids.iter().filter(|&&id| ready(id)) {
            plan.extend(self.plan_one(id, &mut budget, &ready, Some(drafts(id))));
        }
        self.ids = ids;
        while budget.prompt > 0 {
            let Some(id) = self.admit(&ready) else { break };
            plan.extend(self.plan_one(id, &mut budget, &ready, None));
        }
    }

    /// `drafts` is `None` for a sequence that was not among those that decode.
    fn plan_one(
        &mut self,
        id: SequenceId,
        budget: &mut StepBudget,
        ready: &impl Fn(SequenceId) -> bool,
        drafts: Option<usize>,
    ) -> Option<Planned> {
        let sequence = &self.running[self.index(id)?];
        let (pending, position) = (sequence.pending(), sequence.computed);
        let room = sequence.capacity - sequence.tokens.len();
        // Rows of those that decode are set aside already.
        let drafts = drafts.filter(|_| pending == 1);
        let wanted = match drafts {
            Some(_) => 1,
            None => sequence.within(pending.min(budget.prompt), 1 + budget.logits),
        };
        let tokens = self.allocate_rows(id, wanted, ready);
        if tokens == 0 {
            return None;
        }
        let sequence = &self.running[self.index(id)?];
        let outputs = sequence.outputs(tokens);
        if sequence.wants_logits() {
            budget.logits -= outputs.saturating_sub(1);
        }
        let drafts = match drafts {
            Some(drafts) => {
                let most = drafts.min(budget.drafts).min(budget.logits).min(room);
                let most = most.min(self.draft_rows(id));
                let drafts = self.grow(id, 1 + most) - 1;
                budget.drafts -= drafts;
                budget.logits -= drafts;
                drafts
            }
            None => {
                budget.prompt -= tokens;
                0
            }
        };
        Some(Planned { id, position, tokens, drafts, outputs, samples: tokens == pending })
    }

    /// Rows for guesses that take no block which others need for what they know.
    fn draft_rows(&self, id: SequenceId) -> usize {
        if self.pool.available() > self.running.len() {
            return usize::MAX;
        }
        let sequence = &self.running[self.index(id).expect("it runs")];
        sequence.table.len() * self.geometry.block - sequence.computed - 1
    }

    /// Sees to blocks for `rows` more rows of a running sequence, at the expense of others if need
    /// be: of those that are not ready, and of those behind it. Gives the rows there is room for.
    fn allocate_rows(
        &mut self,
        id: SequenceId,
        rows: usize,
        ready: &impl Fn(SequenceId) -> bool,
    ) -> usize {
        loop {
            let granted = self.grow(id, rows);
            if granted == rows {
                return granted;
            }
            let Some(victim) = self.victim(id, ready) else { return granted };
            self.preempt(victim);
        }
    }

    /// Takes blocks for up to `rows` more rows; gives the rows there is room for.
    fn grow(&mut self, id: SequenceId, rows: usize) -> usize {
        let at = self.index(id).expect("it runs");
        let sequence = &mut self.running[at];
        let needed = (sequence.computed + rows).div_ceil(self.geometry.block);
        while sequence.table.len() < needed {
            let Some(block) = self.pool.take() else { break };
            sequence.table.push(block);
        }
        (sequence.table.len() * self.geometry.block - sequence.computed).min(rows)
    }

    fn victim(&self, id: SequenceId, ready: &impl Fn(SequenceId) -> bool) -> Option<usize> {
        let at = self.index(id).expect("it runs");
        let stalled = self.running.iter().rposition(|s| s.id != id && !ready(s.id));
        stalled.or_else(|| (at + 1..self.running.len()).next_back())
    }

    fn preempt(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        sequence.release_blocks(&mut self.pool, &self.geometry);
        self.preemptions += 1;
        self.waiting.add_preempted(sequence);
    }

    /// Admits the next sequence whose known tokens fit beside what runs, in place of sequences
    /// that wait for their readers if need be.
    fn admit(&mut self, ready: &impl Fn(SequenceId) -> bool) -> Option<SequenceId> {
        loop {
            let (index, found) = self.next(ready)?;
            let is_room = self.running.len() < self.limits.running;
            if is_room && self.fits(self.waiting.get(index), &found) {
                return Some(self.admit_at(index, found));
            }
            let stalled = self.running.iter().rposition(|sequence| !ready(sequence.id))?;
            self.preempt(stalled);
        }
    }

    /// The sequence to be admitted next, and what the cache has of it.
    fn next(&mut self, ready: &impl Fn(SequenceId) -> bool) -> Option<(QueueIndex, Match)> {
        let mut candidates = std::mem::take(&mut self.candidates);
        self.waiting.candidates(ready, &mut candidates);
        let next = candidates.iter().find_map(|&index| {
            let found = self.waiting.get(index).find(&self.pool, &self.geometry);
            let waits =
                matches!(index, QueueIndex::New(_)) && self.is_being_computed(index, &found, ready);
            (!waits).then_some((index, found))
        });
        self.candidates = candidates;
        next
    }

    fn admit_at(&mut self, index: QueueIndex, found: Match) -> SequenceId {
        let mut sequence = self.waiting.admit(index);
        self.copies.extend(sequence.attach_prefix(found, &mut self.pool, &self.geometry));
        let id = sequence.id;
        let at = self.running.partition_point(|other| other.rank() < sequence.rank());
        self.running.insert(at, sequence);
        id
    }

    /// Whether a running sequence is about to compute the block that comes after what was found:
    /// to wait for it is cheaper than to compute it twice.
    fn is_being_computed(
        &self,
        index: QueueIndex,
        found: &Match,
        ready: &impl Fn(SequenceId) -> bool,
    ) -> bool {
        let missing = self.waiting.get(index).missing(found, &self.geometry);
        let Some((index, name)) = missing else { return false };
        self.running.iter().any(|s| s.will_compute(index, name) && ready(s.id))
    }

    /// Whether there are blocks for all its tokens, and one more for each sequence that runs.
    fn fits(&self, sequence: &Sequence, found: &Match) -> bool {
        let reused = &found.table[found.first..];
        let idle = reused.iter().filter(|&&block| self.pool.is_idle(block)).count();
        let needed = sequence.tokens.len().div_ceil(self.geometry.block) - found.table.len();
        needed + self.running.len() + idle <= self.pool.available()
    }

    /// Takes note that `planned` was computed and, if it samples, that `sampled` were appended:
    /// all but the last of them were drafted. Nothing happens if the sequence was forgotten in the
    /// meantime. Full blocks can be found by others from now on.
    pub fn commit(&mut self, planned: &Planned, sampled: &[u32]) {
        let Some(at) = self.index(planned.id) else { return };
        let sequence = &mut self.running[at];
        sequence.compute(planned.tokens);
        if planned.samples {
            assert!(sampled.len() <= planned.drafts + 1, "more tokens than rows");
            sequence.computed += sampled.len().saturating_sub(1);
            sequence.tokens.extend_from_slice(sampled);
        }
        assert!(sequence.tokens.len() <= sequence.capacity, "grew beyond its capacity");
        sequence.register_full_blocks(&mut self.pool, &self.geometry);
        self.waiting.served(sequence.tenant, planned.tokens + sampled.len());
    }

    /// Forgets a sequence in any state. What was computed of it stays in the cache.
    pub fn finish(&mut self, id: SequenceId) {
        let gone = match self.index(id) {
            Some(at) => Some(self.running.remove(at)),
            None => self.waiting.remove(id),
        };
        if let Some(mut sequence) = gone {
            sequence.release_blocks(&mut self.pool, &self.geometry);
            self.waiting.ended(sequence.tenant);
        }
    }
}

#[cfg(test)]
mod tests;
