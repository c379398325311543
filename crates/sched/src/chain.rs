//! The tokens of a sequence, and the names of the blocks that they fill.

use base::Name;

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

    /// Forgets all tokens after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.names.truncate(len / self.block);
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

    /// Whether the tokens before `position`, which `other` has, are those of `other`.
    pub fn begins_like(&self, other: &Self, position: usize) -> bool {
        position <= self.tokens.len()
            && self.shared(other) >= position / self.block * self.block
            && self.before(position) == other.before(position)
    }

    /// Number of tokens of the full blocks that both chains begin with.
    pub fn shared(&self, other: &Self) -> usize {
        // A name is one of all tokens before it too.
        let (mut low, mut high) = (0, self.names.len().min(other.names.len()));
        while low < high {
            let middle = low.midpoint(high);
            if self.names[middle] == other.names[middle] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low * self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_share_the_full_blocks_that_they_begin_with() {
        let root = Name::root(b"test");
        let chain = |tokens: &[u32]| Chain::new(root, 2, tokens.to_vec(), 20);
        let all: Vec<u32> = (0..11).collect();
        for shared in 0..=11 {
            let mut other = all.clone();
            other[shared..].fill(99);
            assert_eq!(chain(&all).shared(&chain(&other)), shared / 2 * 2);
            assert_eq!(chain(&other[..shared]).shared(&chain(&all)), shared / 2 * 2);
            let begins = |position| chain(&other).begins_like(&chain(&all), position);
            assert_eq!((0..=11).filter(|&position| begins(position)).max(), Some(shared));
            assert!(!chain(&all[..shared]).begins_like(&chain(&all), shared + 1));
        }
    }
}
