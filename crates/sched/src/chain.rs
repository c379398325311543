//! The tokens of a sequence, and the names of the blocks that they fill.

use crate::Name;

/// Prompt and generated tokens of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Positions of a block.
    pub block: usize,
    /// Parent of the first block.
    root: Name,
    pub tokens: Vec<u32>,
    /// Names of full blocks.
    names: Vec<Name>,
}

impl Chain {
    /// The chain of `tokens` below `root`, which grows to `capacity` tokens.
    pub fn new(root: Name, block: usize, mut tokens: Vec<u32>, capacity: usize) -> Self {
        // Reserved, within reason, so that decoding allocates nothing.
        tokens.reserve_exact((capacity - tokens.len()).min(1 << 16));
        let names = Vec::with_capacity(tokens.capacity().div_ceil(block) + 1);
        let mut chain = Self { block, root, tokens, names };
        chain.extend(&[]);
        chain
    }

    /// Appends tokens.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        for index in self.names.len()..self.tokens.len() / self.block {
            self.names.push(self.parent(index).child(self.full(index)));
        }
    }

    /// Name of the block before block `index`.
    pub fn parent(&self, index: usize) -> Name {
        index.checked_sub(1).map_or(self.root, |before| self.names[before])
    }

    /// Name of block `index`, if its tokens are known.
    pub fn name(&self, index: usize) -> Option<Name> {
        self.names.get(index).copied()
    }

    /// Tokens of block `index`, all of which are known.
    pub fn full(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.block..][..self.block]
    }

    /// Tokens of block `index` up to position `end`.
    pub fn beginning(&self, index: usize, end: usize) -> &[u32] {
        let start = index * self.block;
        self.tokens.get(start..end.min(start + self.block)).unwrap_or_default()
    }

    /// What the tokens before `position` are known by: the name of the last full block and the
    /// tokens since.
    pub fn before(&self, position: usize) -> (Name, &[u32]) {
        let index = position / self.block;
        (self.parent(index), self.beginning(index, position))
    }

    /// Whether both chains have `position` tokens and the same ones.
    pub fn shares(&self, other: &Self, position: usize) -> bool {
        let known = self.tokens.len().min(other.tokens.len());
        position <= known && self.before(position) == other.before(position)
    }
}
