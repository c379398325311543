//! KV blocks: free, held by sequences, or kept as prefix cache until they are evicted.
//!
//! A full block can be registered under its [`Name`]. Any number of sequences may then hold it, and
//! it stays in the cache when the last of them releases it. A registered block is only ever
//! overwritten with the same content. The last, partial block of a sequence that ends is kept as a
//! tail: it has no name and no holder, but its beginning may be copied.
//!
//! Eviction takes blocks without holders, the least valuable first. The value of a block is the
//! time it was last held plus a bonus for its depth, so that much cheap work passes before a long
//! conversation loses a block; among equals the older goes first. Where a chain is only useful from
//! its root, the last blocks of chains go first. Where rows look at a window, blocks have that
//! bonus only where sequences are likely to continue, and one of the pool's size besides.
//!
//! Invariant: every block is free, held or idle; the chain of a held block is held; no tail is a
//! prefix of another registered block.

use crate::children::Children;
use crate::evicted::EvictedNames;
use base::Name;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Value of one block of depth, in blocks taken from the pool: an unused chain of `n` blocks
/// outlives chains of one block by `64 * n` blocks taken.
const DEPTH_BONUS: u64 = 64;

/// Number of blocks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Held by at least one sequence.
    pub used: usize,
    /// Held by no sequence and kept as prefix cache.
    pub cached: usize,
    /// Empty.
    pub free: usize,
}

/// A full block or the tail of a sequence, as its sequence describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilledBlock<'a> {
    /// Name of the block before it.
    pub parent: Name,
    /// The block before it, if it must stay as long as this one.
    pub parent_block: Option<u32>,
    /// Blocks before it in its chain; 0 if it is worth nothing but its age.
    pub depth: usize,
    pub tokens: &'a [u32],
}

#[derive(Clone, Debug)]
struct CacheEntry {
    /// `None` for a tail.
    name: Option<Name>,
    parent: Name,
    parent_block: Option<u32>,
    /// Blocks before it, or what it is worth in them.
    depth: u64,
    tokens: Arc<[u32]>,
    /// Number of registered blocks whose parent this is.
    children: u32,
    /// The pool's clock when it was last released.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    holders: u32,
    entry: Option<CacheEntry>,
}

/// All blocks of a KV cache.
#[derive(Clone, Debug, Default)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Empty blocks; the last is taken first.
    free: Vec<u32>,
    names: HashMap<Name, u32>,
    /// Registered blocks by parent.
    children: Children,
    /// Blocks that may be evicted, with their values.
    evictable: BTreeSet<(u64, u32)>,
    /// Number of registered blocks without holders, evictable now or after others.
    idle: usize,
    /// Number of blocks taken so far.
    clock: u64,
    evictions: u64,
    evicted: EvictedNames,
}

impl BlockPool {
    /// A pool of `total` empty blocks, numbered from 0.
    pub fn new(total: usize) -> Self {
        let total_u32 = u32::try_from(total).expect("block numbers are 32 bits");
        Self {
            blocks: vec![Block::default(); total],
            free: (0..total_u32).rev().collect(),
            names: HashMap::with_capacity(total),
            evicted: EvictedNames::new(total),
            ..Self::default()
        }
    }

    /// Number of blocks.
    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Number of blocks by state.
    pub fn count(&self) -> BlockCounts {
        let (cached, free) = (self.idle, self.free.len());
        BlockCounts { used: self.total() - cached - free, cached, free }
    }

    /// Number of blocks that can be taken.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// Number of cached blocks evicted since the start.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether a block of this name was evicted, as far as that is remembered.
    pub(crate) fn was_evicted(&self, name: Name) -> bool {
        self.evicted.contains(name)
    }

    /// Number of blocks taken since the start: the time by which blocks are used.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// Number of these blocks that have no holder.
    pub(crate) fn idle(&self, blocks: &[u32]) -> usize {
        blocks.iter().filter(|&&block| self.is_idle(block)).count()
    }

    /// Whether the block has no holder.
    fn is_idle(&self, block: u32) -> bool {
        self.blocks[block as usize].holders == 0
    }

    /// Takes a block with one holder: a free one, else the least valuable of the cache.
    pub fn take(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.evict())?;
        self.clock += 1;
        self.blocks[block as usize].holders = 1;
        Some(block)
    }

    /// Adds a holder to a block that [`find`](Self::find) returned.
    pub fn hold(&mut self, block: u32) {
        let Block { holders, entry } = &mut self.blocks[block as usize];
        *holders += 1;
        if *holders == 1 {
            let entry = entry.as_ref().expect("only registered blocks are without holders");
            self.evictable.remove(&(value(entry.used, entry.depth), block));
            self.idle -= 1;
        }
    }

    /// Removes a holder. Without holders, a registered block stays in the cache; any other is free.
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

    /// The block of this name, if it holds `tokens` after the block named `parent`.
    pub fn find(&self, name: Name, parent: Name, tokens: &[u32]) -> Option<u32> {
        let block = *self.names.get(&name)?;
        let entry = self.blocks[block as usize].entry.as_ref()?;
        (entry.parent == parent && *entry.tokens == *tokens).then_some(block)
    }

    /// The child of `parent` that shares the longest prefix with `tokens`, and the length of that
    /// prefix, at least 1. Its content stays until the next step is computed.
    pub(crate) fn nearest(&self, parent: Name, tokens: &[u32]) -> Option<(u32, usize)> {
        self.children.nearest(parent, tokens)
    }

    /// A block that begins with all of `tokens` after the block named `parent`.
    pub(crate) fn tail(&self, parent: Name, tokens: &[u32]) -> Option<u32> {
        let (block, shared) = self.nearest(parent, tokens)?;
        (shared == tokens.len()).then_some(block)
    }

    /// Marks a registered block as used now.
    pub(crate) fn touch(&mut self, block: u32) {
        self.hold(block);
        self.release(block);
    }

    /// Makes a held block, if it is registered, outlive others of its age, as if it came after
    /// `depth` blocks and as many as the pool has.
    pub(crate) fn raise(&mut self, block: u32, depth: usize) {
        let depth = (self.blocks.len() + depth) as u64;
        if let Block { holders: 1.., entry: Some(entry) } = &mut self.blocks[block as usize] {
            entry.depth = entry.depth.max(depth);
        }
    }

    /// Registers a held full block under its name, unless a block has this name already. Returns
    /// the block of this name and content from now on; `None` if the name's block has different
    /// content.
    pub(crate) fn register(
        &mut self,
        block: u32,
        name: Name,
        full: FilledBlock<'_>,
    ) -> Option<u32> {
        if self.names.contains_key(&name) {
            return self.find(name, full.parent, full.tokens);
        }
        self.names.insert(name, block);
        self.enter(block, Some(name), full);
        Some(block)
    }

    /// Keeps a held partial block, which is about to be released, as a tail, unless another block
    /// holds the same tokens.
    pub(crate) fn keep(&mut self, block: u32, tail: FilledBlock<'_>) {
        if self.children.longer(tail.parent, tail.tokens).is_none() {
            self.enter(block, None, tail);
        }
    }

    /// Registers a block and drops a tail that is a prefix of it.
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
        self.evictable.remove(&(value(entry.used, entry.depth), tail));
        self.forget(tail);
        self.free.push(tail);
    }

    /// Makes an idle block evictable, unless its children must go first.
    fn make_evictable(&mut self, block: u32) {
        let Block { holders: 0, entry: Some(entry) } = &self.blocks[block as usize] else { return };
        if entry.children == 0 {
            self.evictable.insert((value(entry.used, entry.depth), block));
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, block) = self.evictable.pop_first()?;
        if let Some(name) = self.forget(block) {
            self.evicted.add(name);
        }
        self.evictions += 1;
        Some(block)
    }

    /// Removes an idle block, the end of its chain, from the cache, and returns its name.
    fn forget(&mut self, block: u32) -> Option<Name> {
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
        entry.name
    }
}

#[cfg(test)]
impl BlockPool {
    /// Panics unless each block has as many holders as it occurs in `held` and the counts agree.
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
                None => assert_eq!(block.holders, 0, "a tail has no holder"),
            }
            idle += usize::from(block.holders == 0);
            let offered = self.evictable.contains(&(value(entry.used, entry.depth), number as u32));
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

/// Value of what was last used at a time and has `depth` blocks before it: the lowest is evicted
/// first.
pub(crate) fn value(used: u64, depth: u64) -> u64 {
    used + DEPTH_BONUS * depth
}

#[cfg(test)]
mod tests;
