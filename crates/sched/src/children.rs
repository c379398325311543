//! Cached blocks by their parent, in the order of their tokens.
//!
//! In this order, the block that shares the longest prefix with a run of tokens is a neighbour of
//! that run, so a lookup compares two blocks, however many there are.
//!
//! Invariant: among the blocks of one parent, no block's tokens are a prefix of another's. A block
//! that would be such a prefix is the direct predecessor of the longer one.

use base::Name;
use std::collections::BTreeMap;
use std::sync::Arc;

type Key = (Name, Arc<[u32]>);

/// Block numbers by the name of the block before and the tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children(BTreeMap<Key, u32>);

impl Children {
    /// Adds a block. No other block of `parent` holds these tokens.
    pub fn insert(&mut self, parent: Name, tokens: Arc<[u32]>, block: u32) {
        self.0.insert((parent, tokens), block);
    }

    /// Removes a block.
    pub fn remove(&mut self, parent: Name, tokens: &Arc<[u32]>) {
        self.0.remove(&(parent, Arc::clone(tokens)));
    }

    /// The block that shares the longest prefix with `tokens`, and the length of that prefix, at
    /// least 1.
    pub fn nearest(&self, parent: Name, tokens: &[u32]) -> Option<(u32, usize)> {
        let key = (parent, Arc::from(tokens));
        let sides = [self.up_to(&key), self.from(&key)].into_iter().flatten();
        let shared = |(found, block): (&[u32], u32)| (block, shared(found, tokens));
        sides.map(shared).filter(|(_, shared)| *shared > 0).max_by_key(|(_, shared)| *shared)
    }

    /// The block whose tokens begin with `tokens`.
    pub fn longer(&self, parent: Name, tokens: &[u32]) -> Option<u32> {
        let (found, block) = self.from(&(parent, Arc::from(tokens)))?;
        found.starts_with(tokens).then_some(block)
    }

    /// The block whose tokens `tokens` begin with.
    pub fn shorter(&self, parent: Name, tokens: &Arc<[u32]>) -> Option<u32> {
        let (found, block) = self.up_to(&(parent, Arc::clone(tokens)))?;
        tokens.starts_with(found).then_some(block)
    }

    fn up_to(&self, key: &Key) -> Option<(&[u32], u32)> {
        let last = self.0.range(..=key).next_back()?;
        Self::of(key.0, last)
    }

    fn from(&self, key: &Key) -> Option<(&[u32], u32)> {
        Self::of(key.0, self.0.range(key..).next()?)
    }

    fn of<'a>(parent: Name, (key, block): (&'a Key, &u32)) -> Option<(&'a [u32], u32)> {
        (key.0 == parent).then_some((&key.1[..], *block))
    }
}

/// Length of the common prefix of two runs.
fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
impl Children {
    /// All blocks with the name before them and their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, u32)> {
        self.0.iter().map(|(key, block)| (key, *block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn the_nearest_is_the_one_that_a_look_at_all_finds() {
        let mut rng = Rng::new(5);
        let (parent, other) = (Name::root(b"parent"), Name::root(b"other"));
        for _ in 0..200 {
            let mut children = Children::default();
            let mut all: Vec<Vec<u32>> = Vec::new();
            for block in 0..rng.below(12) as u32 {
                let tokens: Vec<u32> = (0..4).map(|_| rng.below(3) as u32).collect();
                let len = 1 + rng.below(4) as usize;
                children.insert(parent, tokens[..len].into(), block);
                children.insert(other, tokens[..].into(), 100 + block);
                all.push(tokens[..len].to_vec());
            }
            let wanted: Vec<u32> = (0..4).map(|_| rng.below(3) as u32).collect();
            let best = all.iter().map(|tokens| shared(tokens, &wanted)).max().unwrap_or(0);
            let found = children.nearest(parent, &wanted);
            assert_eq!(found.map_or(0, |(_, shared)| shared), best, "{wanted:?} of {all:?}");
            assert!(found.is_none_or(|(block, _)| block < 100), "of another parent");
        }
    }

    #[test]
    fn beginnings_and_continuations_are_told_apart() {
        let parent = Name::root(b"parent");
        let mut children = Children::default();
        children.insert(parent, [1, 2, 3].into(), 7);
        assert_eq!(children.longer(parent, &[1, 2]), Some(7));
        assert_eq!(children.longer(parent, &[1, 2, 3]), Some(7));
        assert_eq!(children.longer(parent, &[1, 3]), None);
        assert_eq!(children.shorter(parent, &[1, 2, 3, 4].into()), Some(7));
        assert_eq!(children.shorter(parent, &[1, 2].into()), None);
        assert_eq!(children.longer(Name::root(b"other"), &[1, 2]), None);
        children.remove(parent, &[1, 2, 3].into());
        assert_eq!(children.longer(parent, &[1, 2]), None);
    }
}
