//! A sequence: its tokens, the number of computed ones, its KV blocks and its state.

use crate::blocks::{SequenceBlocks, TableSpan};
use crate::cache::{Cache, Match};
use crate::chain::Chain;
use crate::group::GroupMatch;
use crate::lookup::CacheLookup;
use crate::restore::{Restore, RestorePlace};
use crate::restore_plan::{RestorePlan, StoredParts};
use crate::resume::ResumePoints;
use crate::state_pool::StateCopy;
use base::Name;

/// A sequence to be added to a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSequence {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens, prompt included. The last of them need not be computed.
    pub capacity: usize,
    /// Priority; lower numbers go first.
    pub priority: i32,
    /// The tenant of the sequence; tenants share the machine evenly.
    pub tenant: u64,
    /// The user among the tenant's; they share the tenant's part evenly.
    pub user: u64,
    /// The part of the prefix cache that the sequence uses: it finds the blocks of sequences with
    /// the same number and no others. Zero is the common part.
    pub space: [u8; 16],
    /// Whether the whole prompt is computed, without the prefix cache.
    pub cold: bool,
    /// Whether the prompt is computed in one step, as rows look at later ones too: nothing of it is
    /// found in the prefix cache or goes there. It has at most as many tokens as a step has rows.
    pub whole: bool,
    /// Which rows of the prompt need outputs.
    pub output: PromptOutput,
    /// Tokens at the beginning of the prompt whose rows need no outputs.
    pub known: usize,
    /// Positions of the prompt where messages end, from which later prompts are likely to differ.
    /// Of many, the last are used.
    pub marks: Vec<usize>,
}

/// The rows of a prompt that need outputs. Each output is computed and delivered once, whether the
/// sequence is preempted or not, and never found in the cache, which holds no outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptOutput {
    /// The logits of the last row.
    #[default]
    LastLogits,
    /// The logits of every row.
    AllLogits,
    /// The hidden states of every row.
    HiddenStates,
    /// None.
    Nothing,
}

/// A KV block whose content is copied into another before a step is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group of both.
    pub group: usize,
    /// The block that is read.
    pub from: u32,
    /// The block that is written.
    pub to: u32,
}

/// Which list of the scheduler a sequence is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequencePhase {
    New,
    Running,
    Preempted,
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub phase: SequencePhase,
    /// Whether the reader can take the events of a step.
    pub ready: bool,
    /// Whether all its tokens are computed, and its caller chooses the next ones.
    pub waits: bool,
    /// Drafted tokens that the next plan may verify.
    pub drafts: usize,
    pub priority: i32,
    pub tenant: u64,
    pub user: u64,
    cold: bool,
    /// Whether the prompt is computed in one step, and nothing of it is kept.
    pub whole: bool,
    pub output: PromptOutput,
    /// Tokens at the beginning of the prompt whose rows need no outputs.
    pub known: usize,
    /// Rows of the prompt whose outputs were delivered.
    pub delivered: usize,
    /// Order of arrival.
    pub arrival: u64,
    /// Later arrivals that were admitted before it.
    pub overtaken: u32,
    /// Prompt and generated tokens.
    pub chain: Chain,
    /// Tokens of the prompt.
    pub prompt: usize,
    pub capacity: usize,
    /// Tokens whose keys and values are in the KV cache.
    pub computed: usize,
    /// Computed tokens that are part of the state: all but the drafts that the last step accepted.
    pub folded: usize,
    /// The slot of the state, if it runs and has one.
    pub state: Option<u32>,
    /// Known tokens after the computed ones whose rows are part of steps under way. Until these
    /// are committed, the state is undefined.
    pub flying: usize,
    /// Full blocks that it had computed when it ran last.
    released: usize,
    /// Where later sequences are likely to continue.
    pub points: ResumePoints,
    /// What the cache held of the prompt when the sequence was first admitted.
    pub lookup: Option<CacheLookup>,
    /// Tokens that the cache held before others were to come from outside.
    known_before: Option<usize>,
    /// What it expects from outside while it waits.
    pub restore: Option<Restore>,
    /// A block table for each group.
    pub tables: Vec<Vec<u32>>,
    spans: Vec<TableSpan>,
}

impl Sequence {
    pub fn new(new: NewSequence, arrival: u64, root: Name, cache: &Cache, every: usize) -> Self {
        let NewSequence { capacity, priority, tenant, user, space, cold, output, .. } = new;
        let (whole, cold) = (new.whole, cold || new.whole);
        let prompt = new.prompt.len();
        assert!(prompt > 0 && prompt <= capacity, "the prompt fits the capacity");
        let chain = Chain::new(root.in_space(space), cache.block, new.prompt, capacity);
        let blocks = chain.tokens.capacity().div_ceil(cache.block) + 1;
        // Snapshots that cannot all be kept would only evict each other.
        let points = match cache.states.total() {
            0 => ResumePoints::new(new.marks, prompt, 0, usize::MAX),
            states => ResumePoints::new(new.marks, prompt, every, states - 1),
        };
        Self {
            phase: SequencePhase::New,
            ready: true,
            waits: false,
            drafts: 0,
            priority,
            tenant,
            user,
            cold,
            whole,
            output,
            known: new.known,
            delivered: 0,
            arrival,
            overtaken: 0,
            chain,
            prompt,
            capacity,
            computed: 0,
            folded: 0,
            state: None,
            flying: 0,
            released: 0,
            points,
            lookup: None,
            known_before: None,
            restore: None,
            tables: cache.groups.iter().map(|_| Vec::with_capacity(blocks)).collect(),
            spans: vec![TableSpan::default(); cache.groups.len()],
        }
    }

    /// Tokens that are computed, or will be when all steps under way are committed.
    pub fn planned(&self) -> usize {
        self.computed + self.flying
    }

    /// Number of tokens that are neither computed nor part of a step under way.
    pub fn pending(&self) -> usize {
        self.chain.tokens.len() - self.planned()
    }

    /// The first row that needs an output; at the latest the last row, which is always computed.
    fn first_output(&self) -> usize {
        let last = self.chain.tokens.len().saturating_sub(1);
        match self.output {
            PromptOutput::AllLogits | PromptOutput::HiddenStates
                if self.delivered < self.prompt =>
            {
                self.delivered.max(self.planned()).max(self.known).min(last)
            }
            _ => last,
        }
    }

    /// Number of the next `rows` pending rows that need outputs: always the last ones.
    pub fn outputs(&self, rows: usize) -> usize {
        match self.output {
            PromptOutput::Nothing => 0,
            _ => (self.planned() + rows).saturating_sub(self.first_output()),
        }
    }

    /// The largest number of the next `rows` rows that give at most `logits` rows of logits.
    pub fn within(&self, rows: usize, logits: usize) -> usize {
        match self.output {
            PromptOutput::HiddenStates | PromptOutput::Nothing => rows,
            _ => rows.min((self.first_output() - self.planned()).saturating_add(logits)),
        }
    }

    /// Whether its outputs are rows of logits.
    pub fn wants_logits(&self) -> bool {
        matches!(self.output, PromptOutput::LastLogits | PromptOutput::AllLogits)
    }

    /// Appends tokens that the caller has chosen. They take the place of the prompt: their rows
    /// need outputs as `output` says.
    pub fn extend(&mut self, tokens: &[u32], output: PromptOutput) {
        assert!(!tokens.is_empty(), "a step computes at least one token");
        self.known = self.chain.tokens.len();
        self.chain.extend(tokens);
        self.prompt = self.chain.tokens.len();
        assert!(self.prompt <= self.capacity, "the tokens fit the capacity");
        self.output = output;
    }

    /// Forgets all tokens after the first `len`. Nothing may be computed of the sequence.
    pub fn truncate(&mut self, len: usize) {
        assert!(self.computed == 0 && len <= self.chain.tokens.len(), "a part of a released one");
        self.chain.truncate(len);
        self.prompt = len;
        self.delivered = self.delivered.min(len);
        self.released = self.released.min(len / self.chain.block);
    }

    /// Full blocks that were computed, counted from the first.
    pub fn registered(&self) -> usize {
        match self.phase {
            SequencePhase::Running => self.spans[0].registered,
            _ => self.released,
        }
    }

    /// Sort key in the list of its phase: arrival of new sequences, else priority and arrival.
    pub fn order(&self) -> (i32, u64) {
        let priority = if self.phase == SequencePhase::New { 0 } else { self.priority };
        (priority, self.arrival)
    }

    /// Its blocks in each group.
    fn blocks<'a>(&'a mut self, cache: &'a mut Cache) -> impl Iterator<Item = SequenceBlocks<'a>> {
        let Self { chain, points, tables, spans, .. } = self;
        let (chain, points) = (&*chain, &*points);
        let groups = tables.iter_mut().zip(spans).zip(&mut cache.groups);
        groups.map(move |((table, span), group)| SequenceBlocks {
            chain,
            points,
            table,
            span,
            group,
        })
    }

    /// What the cache holds of the tokens up to the first row that needs an output.
    pub fn find(&self, cache: &Cache) -> Match {
        if self.cold {
            let groups = cache.groups.iter().map(|_| GroupMatch::default()).collect();
            return Match { groups, ..Match::default() };
        }
        cache.find(&self.chain, self.first_output())
    }

    /// Whether it waits for the first time, and may use what was computed for others.
    pub fn may_restore(&self) -> bool {
        self.phase == SequencePhase::New && !self.cold && self.restore.is_none()
    }

    /// What would have to come from outside for it to continue further than with the cache alone.
    pub fn plan_restore(&self, cache: &Cache, stored: &dyn StoredParts) -> Option<RestorePlan> {
        if !self.may_restore() {
            return None;
        }
        let known = self.find(cache).tokens;
        RestorePlan::new(&self.chain, cache, [known, self.first_output()], stored)
    }

    /// Expects what a plan lacks; returns the places that are to be written. `None` if they are not
    /// available in addition to so many blocks.
    pub fn begin_restore(
        &mut self,
        cache: &mut Cache,
        plan: &RestorePlan,
        spare: usize,
    ) -> Option<Vec<RestorePlace>> {
        self.restore = Restore::begin(cache, &self.chain, plan, spare);
        self.known_before = Some(plan.known);
        self.restore.as_ref().map(|restore| restore.expected().collect())
    }

    /// Takes the next place that it expects, which was written.
    pub fn restored(&mut self, cache: &mut Cache) {
        if let Some(restore) = &mut self.restore {
            restore.advance(&self.chain, cache);
        }
    }

    /// Whether `other`, which waits, expects what this sequence needs after `found`: the next
    /// block; with windows or states all up to a position that both begin with.
    pub fn waits_for_restore(&self, other: &Self, found: &Match, cache: &Cache) -> bool {
        let Some(restore) = other.restore.as_ref().filter(|_| self.may_restore()) else {
            return false;
        };
        if cache.is_plain() {
            return self.needed_block(found, other).is_some_and(|index| restore.expects(index));
        }
        let position = restore.position();
        (found.tokens + 1..=self.first_output()).contains(&position)
            && self.chain.begins_like(&other.chain, position)
    }

    /// Index of the full block that this sequence needs after `found`, if `other` has it too.
    fn needed_block(&self, found: &Match, other: &Self) -> Option<usize> {
        let index = found.groups[0].end();
        let name = self.chain.name(index)?;
        let is_needed = index * self.chain.block < self.first_output();
        (is_needed && other.chain.name(index) == Some(name)).then_some(index)
    }

    /// The position up to which the sequence can use what `other` computes: the end of the last
    /// full block that both begin with.
    pub fn common(&self, other: &Self) -> usize {
        let most = if self.cold { 0 } else { self.first_output() };
        self.chain.shared(&other.chain).min(most / self.chain.block * self.chain.block)
    }

    /// Whether `other`, which runs, is about to compute what this sequence needs after `found`, so
    /// that it can be found then: the next block; with states the last common one, after which
    /// `other` takes a snapshot.
    pub fn waits_for(&self, other: &Self, found: &Match) -> bool {
        if self.cold || !other.spans[0].registrable {
            return false;
        }
        if other.state.is_some() {
            return (found.tokens..self.common(other)).contains(&other.folded);
        }
        let shared = self.needed_block(found, other);
        shared.is_some_and(|index| other.spans[0].registered <= index)
    }

    /// Takes the blocks of a match, and a slot for the state. Adds the copies that are to be made
    /// to `copies`, and returns that of the state.
    pub fn attach(
        &mut self,
        found: &Match,
        cache: &mut Cache,
        copies: &mut Vec<BlockCopy>,
    ) -> Option<StateCopy> {
        for (group, (blocks, part)) in self.blocks(cache).zip(&found.groups).enumerate() {
            let copy = blocks.attach(part, found.tokens);
            copies.extend(copy.map(|(from, to)| BlockCopy { group, from, to }));
        }
        (self.computed, self.folded) = (found.tokens, found.tokens);
        if self.lookup.is_none() {
            self.lookup = Some(self.looked_up(found, cache));
        }
        self.points.branch_at(found.tokens + found.unreached.total());
        if cache.states.is_empty() {
            return None;
        }
        let (state, copy) = cache.states.resume(found.state, cache.trunk().clock());
        self.state = Some(state);
        copy
    }

    /// What is reported of a match when the sequence is first admitted.
    fn looked_up(&self, found: &Match, cache: &Cache) -> CacheLookup {
        let looked_up = if self.cold { 0 } else { self.first_output() };
        let restored = self.known_before.map_or(0, |known| found.tokens.saturating_sub(known));
        let (found, unreached) = (found.tokens, found.unreached);
        let lookup = CacheLookup { looked_up, found, restored, unreached, evicted: false };
        let next = self.chain.name(lookup.known() / self.chain.block);
        let evicted = next.is_some_and(|name| cache.trunk().was_evicted(name));
        CacheLookup { evicted: evicted && lookup.known() < looked_up, ..lookup }
    }

    /// Takes blocks for up to `rows` more rows. Returns the rows that fit into the first group, and
    /// the rows that fit into all of them.
    pub fn grow(&mut self, rows: usize, cache: &mut Cache) -> (usize, usize) {
        let planned = self.planned();
        let mut fit = self.blocks(cache).map(|blocks| blocks.grow(planned, rows));
        let trunk = fit.next().unwrap_or_default();
        (trunk, fit.fold(trunk, usize::min))
    }

    /// Rows after the planned ones for which it has blocks.
    pub fn room(&self) -> usize {
        let blocks = self.tables.iter().map(Vec::len).min().unwrap_or_default();
        blocks * self.chain.block - self.planned()
    }

    /// Counts `tokens` known tokens as computed, appends the `sampled` ones, all but the last of
    /// which were computed as drafts, and registers the blocks that are full.
    pub fn commit(&mut self, tokens: usize, sampled: &[u32], cache: &mut Cache) {
        self.flying -= tokens;
        self.computed += tokens;
        self.delivered = self.delivered.max(self.computed);
        self.folded = self.computed;
        self.computed += sampled.len().saturating_sub(1);
        if self.state.is_none() {
            self.folded = self.computed;
        }
        self.chain.extend(sampled);
        assert!(self.chain.tokens.len() <= self.capacity, "grew beyond its capacity");
        let computed = if self.whole { 0 } else { self.computed };
        self.blocks(cache).for_each(|mut blocks| blocks.register_full(computed));
    }

    /// Returns all blocks to the pools, and its slot as a snapshot: the sequence has nothing
    /// computed any more, but may find it in the cache, the partial last block included.
    pub fn release(&mut self, cache: &mut Cache) {
        let (computed, next) = if self.whole { (0, 0) } else { (self.computed, self.folded) };
        let known = self.spans[0].registrable && next > 0 && self.flying == 0;
        self.released = self.spans[0].registered;
        self.blocks(cache).for_each(|blocks| blocks.release(computed, next));
        let now = cache.trunk().clock();
        match self.state.take() {
            Some(state) if known => {
                cache.states.keep(state, &self.chain, next, next / cache.block, now);
            }
            Some(state) => cache.states.release(state),
            None => {}
        }
        (self.computed, self.folded, self.flying) = (0, 0, 0);
    }
}

#[cfg(test)]
impl Sequence {
    /// The largest number of tokens that it may find in the cache.
    pub fn most_found(&self) -> usize {
        if self.cold { 0 } else { self.first_output() }
    }

    /// The blocks that it holds of a group.
    pub fn held(&self, group: usize) -> impl Iterator<Item = u32> {
        let table = &self.tables[group];
        let restored = self.restore.iter().flat_map(move |restore| restore.held(group));
        let held = table[self.spans[group].first.min(table.len())..].iter();
        held.copied().chain(restored)
    }

    /// The state slots that it has taken.
    pub fn states(&self) -> impl Iterator<Item = u32> {
        let restored = self.restore.as_ref().and_then(Restore::state);
        self.state.into_iter().chain(restored)
    }
}
