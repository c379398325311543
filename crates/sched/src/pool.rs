//! KV blocks: free, held by sequences, or kept as prefix cache until their room is needed.
//!
//! A block that is full can be registered under its [`Name`]. It then may be held by any number
//! of sequences at once, and stays when the last lets it go. Nobody writes into a registered block
//! anything but what it holds already. The last block of a sequence that ends is kept as a tail: it
//! has no name and is held by nobody, but may be copied as far as it is of use.
//!
//! What to evict: blocks nobody holds, the least valuable first. A block's value is when it was
//! last held plus a bonus for its depth, so that much cheap work passes before a long conversation
//! loses a block, and the old goes before the new among equals. Where a chain is only of use from
//! its root on, the last blocks of chains go first.
//!
//! Invariant: free, held and idle blocks are all blocks; a held block's chain is held; no tail is
//! the beginning of another registered block.

use crate::Name;
use crate::children::Children;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Blocks that may be taken from the pool before a block outlives one that is one block deeper in
/// its chain and as old. A chain of `n` blocks that nobody uses thus outlives chains of one block
/// by `64 * n` blocks taken.
const DEPTH_BONUS: u64 = 64;

/// How many blocks are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Held by at least one sequence.
    pub used: usize,
    /// Held by none, kept as prefix cache.
    pub cached: usize,
    /// Empty.
    pub free: usize,
}

/// What became of a block that was to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// It is found under its name from now on.
    New,
    /// This block holds the same already.
    Already(u32),
    /// Another block has the name and holds something else.
    Taken,
}

/// A block, full or the tail of a sequence, as its sequence describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilledBlock<'a> {
    /// Name of the block before it.
    pub parent: Name,
    /// That block, if it must stay as long as this one.
    pub parent_block: Option<u32>,
    /// Blocks before it in its chain.
    pub depth: usize,
    pub tokens: &'a [u32],
}

#[derive(Clone, Debug)]
struct CacheEntry {
    /// None of a tail.
    name: Option<Name>,
    parent: Name,
    parent_block: Option<u32>,
    depth: u64,
    tokens: Arc<[u32]>,
    /// Registered blocks whose parent this is.
    children: u32,
    /// The pool's clock when it was last let go.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    holders: u32,
    entry: Option<CacheEntry>,
}

/// All blocks of a KV cache.
#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Empty blocks; the last is given out first.
    free: Vec<u32>,
    names: HashMap<Name, u32>,
    /// Registered blocks by what is before them.
    children: Children,
    /// Blocks that may be evicted, by value.
    evictable: BTreeSet<(u64, u32)>,
    /// Registered blocks that nobody holds, evictable at once or after others.
    idle: usize,
    /// Blocks taken so far.
    clock: u64,
    evictions: u64,
}

impl BlockPool {
    /// A pool of `total` empty blocks, numbered from 0.
    pub fn new(total: usize) -> Self {
        let total_u32 = u32::try_from(total).expect("block numbers are 32 bits");
        Self {
            blocks: vec![Block::default(); total],
            free: (0..total_u32).rev().collect(),
            names: HashMap::with_capacity(total),
            children: Children::default(),
            evictable: BTreeSet::new(),
            idle: 0,
            clock: 0,
            evictions: 0,
        }
    }

    /// Blocks in all.
    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    /// How many blocks are what.
    pub fn count(&self) -> BlockCounts {
        let (cached, free) = (self.idle, self.free.len());
        BlockCounts { used: self.total() - cached - free, cached, free }
    }

    /// Blocks that can be taken.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// Cached blocks whose room was taken for others, since the beginning.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether nobody holds the block.
    pub(crate) fn is_idle(&self, block: u32) -> bool {
        self.blocks[block as usize].holders == 0
    }

    /// An empty block with one holder; the least valuable of the cache where none is empty.
    pub fn take(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.clock += 1;
        self.blocks[block as usize].holders = 1;
        Some(block)
    }

    /// One more holder for a block that [`find`](Self::find) gave.
    pub fn hold(&mut self, block: u32) {
        let Block { holders, entry } = &mut self.blocks[block as usize];
        *holders += 1;
        if *holders == 1 {
            let entry = entry.as_ref().expect("only registered blocks are without holders");
            self.evictable.remove(&(value(entry), block));
            self.idle -= 1;
        }
    }

    /// One holder less. The last leaves a registered block to the cache, any other empty.
    pub fn release(&mut self, block: u32) {
        let clock = self.clock;
        let Block { holders, entry } = &mut self.blocks[block as usize];
        *holders = holders.checked_sub(1).expect("it was held");
        if *holders > 0 {
            return;
        }
        match entry {
            Some(entry) => {
                entry.used = clock;
                self.idle += 1;
                self.make_evictable(block);
            }
            None => self.free.push(block),
        }
    }

    /// The block of this name, if it holds `tokens` behind the block named `parent`.
    pub fn find(&self, name: Name, parent: Name, tokens: &[u32]) -> Option<u32> {
        let block = *self.names.get(&name)?;
        let entry = self.blocks[block as usize].entry.as_ref()?;
        (entry.parent == parent && *entry.tokens == *tokens).then_some(block)
    }

    /// The block behind the one named `parent` that begins as `tokens` do for longest, and for how
    /// many of them: one at least. It stays as it is until the next step is computed.
    pub(crate) fn nearest(&self, parent: Name, tokens: &[u32]) -> Option<(u32, usize)> {
        self.children.nearest(parent, tokens)
    }

    /// Takes note that a registered block was of use now.
    pub(crate) fn touch(&mut self, block: u32) {
        self.hold(block);
        self.release(block);
    }

    /// Makes a held full block known under its name.
    pub(crate) fn register(
        &mut self,
        block: u32,
        name: Name,
        full: FilledBlock<'_>,
    ) -> Registration {
        if let Some(found) = self.find(name, full.parent, full.tokens) {
            return Registration::Already(found);
        }
        if self.names.contains_key(&name) {
            return Registration::Taken;
        }
        self.names.insert(name, block);
        self.enter(block, Some(name), full);
        Registration::New
    }

    /// Has a held block, not full and about to be let go, kept as a tail, unless another holds what
    /// it does.
    pub(crate) fn keep(&mut self, block: u32, tail: FilledBlock<'_>) {
        if self.children.longer(tail.parent, tail.tokens).is_none() {
            self.enter(block, None, tail);
        }
    }

    /// Registers a block in place of a tail that it goes on from.
    fn enter(&mut self, block: u32, name: Option<Name>, filled: FilledBlock<'_>) {
        let FilledBlock { parent, parent_block, depth, tokens } = filled;
        let tokens: Arc<[u32]> = tokens.into();
        if let Some(tail) = self.children.shorter(parent, &tokens) {
            self.drop_tail(tail);
        }
        if let Some(before) = parent_block {
            let before = self.blocks[before as usize].entry.as_mut();
            before.expect("chains are registered from their root on").children += 1;
        }
        self.children.insert(parent, Arc::clone(&tokens), block);
        let (depth, used) = (depth as u64, self.clock);
        let entry = CacheEntry { name, parent, parent_block, depth, tokens, children: 0, used };
        self.blocks[block as usize].entry = Some(entry);
    }

    fn drop_tail(&mut self, tail: u32) {
        let entry = self.blocks[tail as usize].entry.as_ref().expect("it is registered");
        self.evictable.remove(&(value(entry), tail));
        self.forget(tail);
        self.free.push(tail);
    }

    /// Lets an idle block be evicted, unless others must go before it.
    fn make_evictable(&mut self, block: u32) {
        let Block { holders: 0, entry: Some(entry) } = &self.blocks[block as usize] else { return };
        if entry.children == 0 {
            self.evictable.insert((value(entry), block));
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, block) = self.evictable.pop_first()?;
        self.forget(block);
        self.evictions += 1;
        Some(block)
    }

    /// Takes an idle block, which is the end of its chain, out of the cache.
    fn forget(&mut self, block: u32) {
        let entry = self.blocks[block as usize].entry.take().expect("idle blocks are registered");
        if let Some(name) = &entry.name {
            self.names.remove(name);
        }
        self.children.remove(entry.parent, &entry.tokens);
        self.idle -= 1;
        if let Some(parent) = entry.parent_block {
            let above = self.blocks[parent as usize].entry.as_mut();
            above.expect("a chain goes from its end").children -= 1;
            self.make_evictable(parent);
        }
    }
}

#[cfg(test)]
impl BlockPool {
    /// Panics unless each block has as many holders as it is named in `held`, and the books agree.
    pub fn check(&self, held: impl Iterator<Item = u32>) {
        let mut holders = vec![0; self.total()];
        held.for_each(|block| holders[block as usize] += 1);
        let mut children = vec![0; self.total()];
        for block in &self.blocks {
            if let Some(parent) = block.entry.as_ref().and_then(|entry| entry.parent_block) {
                children[parent as usize] += 1;
            }
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let (mut idle, mut evictable) = (0, 0);
        for (number, block) in self.blocks.iter().enumerate() {
            assert_eq!(block.holders, holders[number], "holders of block {number}");
            let Some(entry) = &block.entry else {
                let is_free = free.binary_search(&(number as u32)).is_ok();
                assert_eq!(is_free, block.holders == 0, "block {number}");
                continue;
            };
            assert_eq!(entry.children, children[number], "children of block {number}");
            match &entry.name {
                Some(name) => assert_eq!(self.names.get(name), Some(&(number as u32))),
                None => assert_eq!(block.holders, 0, "nobody holds a tail"),
            }
            idle += usize::from(block.holders == 0);
            let offered = self.evictable.contains(&(value(entry), number as u32));
            assert_eq!(offered, block.holders == 0 && entry.children == 0, "block {number}");
            evictable += usize::from(offered);
        }
        assert_eq!((idle, evictable), (self.idle, self.evictable.len()));
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a block is free once");
        self.check_children();
    }

    fn check_children(&self) {
        let entries = self.blocks.iter().filter_map(|block| block.entry.as_ref());
        assert_eq!(self.children.iter().count(), entries.count());
        let mut last: Option<&(Name, Arc<[u32]>)> = None;
        for (key, block) in self.children.iter() {
            let entry = self.blocks[block as usize].entry.as_ref().expect("it is registered");
            assert_eq!((&entry.parent, &entry.tokens), (&key.0, &key.1), "block {block}");
            let begins = |last: &(Name, Arc<[u32]>)| last.0 == key.0 && key.1.starts_with(&last.1);
            assert!(!last.is_some_and(begins), "block {block} goes on from a tail");
            last = Some(key);
        }
    }
}

/// What a block is worth: higher goes later.
fn value(entry: &CacheEntry) -> u64 {
    entry.used + DEPTH_BONUS * entry.depth
}

#[cfg(test)]
mod tests;
