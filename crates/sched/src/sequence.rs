//! A sequence: its tokens, the number of computed ones, and its KV blocks.

use crate::name::Name;
use crate::pool::{BlockPool, FilledBlock};

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
    /// Which rows of the prompt need outputs.
    pub output: PromptOutput,
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
}

/// Entry of a block table for a block before the window of all rows.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Size of blocks, and which of them rows see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGeometry {
    /// Positions of a block.
    pub block: usize,
    /// Maximum number of positions that a row attends to, its own included, if every layer has a
    /// window.
    pub window: Option<usize>,
    /// Parent of first blocks in the common part of the prefix cache.
    pub root: Name,
}

impl BlockGeometry {
    /// Index of the first block that the row at `position` attends to.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window) / self.block)
    }
}

/// The part of a sequence that the cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Match {
    /// Block table of the whole blocks that need not be computed.
    pub table: Vec<u32>,
    /// Index of the first entry that is not [`NO_BLOCK`].
    pub first: usize,
    /// A block that begins like the next one.
    pub partial: Option<PartialMatch>,
}

/// A block whose beginning a sequence shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialMatch {
    pub block: u32,
    /// Positions that are equal.
    pub shared: usize,
}

/// A KV block whose content is copied into another before a step is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The block that is read.
    pub from: u32,
    /// The block that is written.
    pub to: u32,
}

/// Which list of the scheduler a sequence is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SequencePhase {
    #[default]
    New,
    Running,
    Preempted,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    pub phase: SequencePhase,
    /// Whether the reader can take the events of a step.
    pub ready: bool,
    /// Drafted tokens that the next plan may verify.
    pub drafts: usize,
    pub priority: i32,
    pub tenant: u64,
    pub user: u64,
    cold: bool,
    /// Parent of the first block.
    root: Name,
    pub output: PromptOutput,
    /// Rows of the prompt whose outputs were delivered.
    delivered: usize,
    /// Order of arrival.
    pub arrival: u64,
    /// Later arrivals that were admitted before it.
    pub overtaken: u32,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    pub capacity: usize,
    /// Tokens whose keys and values are in the KV cache.
    pub computed: usize,
    /// Prompt tokens found in the cache when the sequence was first admitted.
    pub cached: Option<usize>,
    /// Block table; [`NO_BLOCK`] before `first`.
    pub table: Vec<u32>,
    first: usize,
    /// Names of full blocks.
    names: Vec<Name>,
    /// Blocks of the table that are registered, counted from the first.
    registered: usize,
    /// Whether further blocks can be registered.
    registrable: bool,
}

impl Sequence {
    pub fn new(new: NewSequence, arrival: u64, geometry: &BlockGeometry) -> Self {
        let NewSequence { prompt, capacity, priority, tenant, user, space, cold, output } = new;
        let mut tokens = prompt;
        assert!(!tokens.is_empty() && tokens.len() <= capacity, "the prompt fits the capacity");
        let prompt = tokens.len();
        // Reserved, within reason, so that decoding allocates nothing.
        tokens.reserve_exact((capacity - prompt).min(1 << 16));
        let blocks = tokens.capacity().div_ceil(geometry.block) + 1;
        let mut sequence = Self {
            ready: true,
            priority,
            tenant,
            user,
            cold,
            root: geometry.root.in_space(space),
            output,
            arrival,
            tokens,
            prompt,
            capacity,
            table: Vec::with_capacity(blocks),
            names: Vec::with_capacity(blocks),
            registrable: true,
            ..Self::default()
        };
        sequence.extend_names(geometry);
        sequence
    }

    /// Number of tokens that are not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// The first row that needs an output; at the latest the last row.
    fn first_output(&self) -> usize {
        let last = self.tokens.len() - 1;
        let all = self.output != PromptOutput::LastLogits && self.delivered < self.prompt;
        if all { self.delivered.min(last) } else { last }
    }

    /// Number of the next `rows` pending rows that need outputs: always the last ones.
    pub fn outputs(&self, rows: usize) -> usize {
        (self.computed + rows).saturating_sub(self.first_output())
    }

    /// The largest number of the next `rows` rows that give at most `logits` rows of logits.
    pub fn within(&self, rows: usize, logits: usize) -> usize {
        match self.output {
            PromptOutput::HiddenStates => rows,
            _ => rows.min((self.first_output() - self.computed).saturating_add(logits)),
        }
    }

    /// Counts `tokens` more tokens as computed.
    pub fn compute(&mut self, tokens: usize) {
        self.computed += tokens;
        self.delivered = self.delivered.max(self.computed);
    }

    /// Whether its outputs are rows of logits.
    pub fn wants_logits(&self) -> bool {
        self.output != PromptOutput::HiddenStates
    }

    /// Sort key in the list of its phase: arrival of new sequences, else priority and arrival.
    pub fn order(&self) -> (i32, u64) {
        let priority = if self.phase == SequencePhase::New { 0 } else { self.priority };
        (priority, self.arrival)
    }

    /// The blocks that the sequence holds.
    pub fn held(&self) -> impl Iterator<Item = u32> {
        self.table[self.first.min(self.table.len())..].iter().copied()
    }

    fn parent(&self, index: usize) -> Name {
        index.checked_sub(1).map_or(self.root, |before| self.names[before])
    }

    fn block_tokens(&self, index: usize, geometry: &BlockGeometry) -> &[u32] {
        &self.tokens[index * geometry.block..][..geometry.block]
    }

    fn extend_names(&mut self, geometry: &BlockGeometry) {
        for index in self.names.len()..self.tokens.len() / geometry.block {
            let name = self.parent(index).child(self.block_tokens(index, geometry));
            self.names.push(name);
        }
    }

    /// Finds the longest prefix for which the cache holds all blocks that the next row attends to,
    /// and the block that shares most of what follows; at most up to the first row that needs an
    /// output.
    pub fn find(&self, pool: &BlockPool, geometry: &BlockGeometry) -> Match {
        if self.cold {
            return Match::default();
        }
        let mut found: Vec<u32> = Vec::new();
        let (mut run, mut best) = (0, 0);
        let most = self.reusable_tokens(geometry);
        for (index, &name) in self.names.iter().take(most / geometry.block).enumerate() {
            let tokens = self.block_tokens(index, geometry);
            let block = pool.find(name, self.parent(index), tokens);
            if block.is_none() && geometry.window.is_none() {
                break;
            }
            run = if block.is_some() { run + 1 } else { 0 };
            found.push(block.unwrap_or(NO_BLOCK));
            if index + 1 - run <= geometry.first_seen((index + 1) * geometry.block) {
                best = index + 1;
            }
        }
        found.truncate(best);
        let first =
            if best == 0 { 0 } else { geometry.first_seen(best * geometry.block).min(best) };
        found[..first].fill(NO_BLOCK);
        Match { table: found, first, partial: self.partial(best, pool, geometry) }
    }

    /// Number of tokens whose blocks may be shared. The first row that needs an output is always
    /// computed. In a shared block that may only be the last row, which writes what is there
    /// already: any other could be followed by slots that are not written yet.
    fn reusable_tokens(&self, geometry: &BlockGeometry) -> usize {
        let first = self.first_output();
        // With a window, the row may see one more block.
        let is_last = first + 1 == self.tokens.len() && geometry.window.is_none();
        if is_last { first + 1 } else { first }
    }

    /// The cached block that shares the longest prefix with block `index`.
    fn partial(
        &self,
        index: usize,
        pool: &BlockPool,
        geometry: &BlockGeometry,
    ) -> Option<PartialMatch> {
        let start = index * geometry.block;
        let end = (start + geometry.block).min(self.first_output());
        let next = self.tokens.get(start..end).filter(|next| !next.is_empty())?;
        let (block, shared) = pool.nearest(self.parent(index), next)?;
        Some(PartialMatch { block, shared })
    }

    /// Index and name of the first block after a match, if its tokens are known and it could be
    /// found once another sequence has computed it.
    pub fn missing(&self, found: &Match, geometry: &BlockGeometry) -> Option<(usize, Name)> {
        let index = found.table.len();
        let could = !self.cold && index * geometry.block < self.first_output();
        self.names.get(index).filter(|_| could).map(|&name| (index, name))
    }

    /// Whether the sequence is going to compute and register the block `name` at `index`.
    pub fn will_compute(&self, index: usize, name: Name) -> bool {
        self.registrable && self.registered <= index && self.names.get(index) == Some(&name)
    }

    /// Takes the blocks of a match, up to the first row that needs an output. Returns the copy that
    /// is to be made.
    pub fn attach_prefix(
        &mut self,
        found: Match,
        pool: &mut BlockPool,
        geometry: &BlockGeometry,
    ) -> Option<BlockCopy> {
        found.table[found.first..].iter().for_each(|&block| pool.hold(block));
        self.registered = found.table.len();
        self.computed = (self.registered * geometry.block).min(self.first_output());
        self.first = found.first;
        self.table.clear();
        self.table.extend_from_slice(&found.table);
        self.registrable = true;
        let copied = found.partial.and_then(|partial| self.copy(partial, pool));
        self.cached.get_or_insert(self.computed.min(self.prompt));
        copied
    }

    fn copy(
        &mut self,
        PartialMatch { block, shared }: PartialMatch,
        pool: &mut BlockPool,
    ) -> Option<BlockCopy> {
        pool.touch(block);
        // The pool returns the block itself if it has no other.
        let to = pool.take()?;
        self.table.push(to);
        self.computed += shared;
        (to != block).then_some(BlockCopy { from: block, to })
    }

    /// Returns all blocks to the pool: the sequence has nothing computed any more, but may find its
    /// blocks in the cache, the partial last one included.
    pub fn release_blocks(&mut self, pool: &mut BlockPool, geometry: &BlockGeometry) {
        let index = self.computed / geometry.block;
        let tail = self.computed % geometry.block;
        if self.registrable && self.registered == index && tail > 0 {
            let tokens = &self.tokens[index * geometry.block..self.computed];
            pool.keep(self.table[index], self.filled(index, tokens, geometry));
        }
        self.held().for_each(|block| pool.release(block));
        self.table.clear();
        (self.first, self.registered, self.computed) = (0, 0, 0);
    }

    /// Registers the blocks that have become full and releases blocks before the window.
    pub fn register_full_blocks(&mut self, pool: &mut BlockPool, geometry: &BlockGeometry) {
        self.extend_names(geometry);
        while self.registrable && self.registered < self.computed / geometry.block {
            self.register_next(pool, geometry);
        }
        let seen = geometry.first_seen(self.computed).min(self.registered);
        while self.first < seen {
            pool.release(std::mem::replace(&mut self.table[self.first], NO_BLOCK));
            self.first += 1;
        }
    }

    /// Describes block `index`, in which `tokens` are computed.
    fn filled<'a>(
        &self,
        index: usize,
        tokens: &'a [u32],
        geometry: &BlockGeometry,
    ) -> FilledBlock<'a> {
        let before = index.checked_sub(1).map(|before| self.table[before]);
        FilledBlock {
            parent: self.parent(index),
            // With a window, the end of a chain is useful without its root.
            parent_block: before.filter(|_| geometry.window.is_none()),
            depth: index,
            tokens,
        }
    }

    fn register_next(&mut self, pool: &mut BlockPool, geometry: &BlockGeometry) {
        let index = self.registered;
        let full = self.filled(index, self.block_tokens(index, geometry), geometry);
        let Some(block) = pool.register(self.table[index], self.names[index], full) else {
            self.registrable = false;
            return;
        };
        // Both hold the same bits: one is enough.
        if block != self.table[index] {
            pool.hold(block);
            pool.release(std::mem::replace(&mut self.table[index], block));
        }
        self.registered += 1;
    }
}
