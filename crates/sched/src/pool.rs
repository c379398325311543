//! KV blocks: free, held by sequences, or kept as prefix cache until their room is needed.
//!
//! A block that is full can be registered under its [`Name`]. It then may be held by any number
//! of sequences at once, and stays when the last lets it go. Nobody writes into a registered block
//! anything but what it holds already.
//!
//! What to evict: blocks nobody holds, the least valuable first. A block's value is when it was
//! last held plus a bonus for its depth, so that much cheap work passes before a long conversation
//! loses a block, and the old goes before the new among equals. Where a chain is only of use from
//! its root on, the last blocks of chains go first.
//!
//! Invariant: free, held and idle blocks are all blocks; a held block's chain is held.

use crate::Name;
use std::collections::{BTreeSet, HashMap};

/// Blocks that may be taken from the pool before a block outlives one that is one block deeper in
/// its chain and as old. A chain of `n` blocks that nobody uses thus outlives chains of one block
/// by `64 * n` blocks taken.
const BONUS: u64 = 64;

/// How many blocks are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Held by at least one sequence.
    pub used: usize,
    /// Held by none, kept as prefix cache.
    pub cached: usize,
    /// Empty.
    pub free: usize,
}

/// What became of a block that was to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// It is found under its name from now on.
    New,
    /// This block holds the same already.
    Already(u32),
    /// Another block has the name and holds something else.
    Taken,
}

/// A full block as its sequence describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full<'a> {
    pub name: Name,
    /// Name of the block before it.
    pub parent: Name,
    /// That block, if it must stay as long as this one.
    pub parent_block: Option<u32>,
    /// Blocks before it in its chain.
    pub depth: usize,
    pub tokens: &'a [u32],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Name,
    parent: Name,
    parent_block: Option<u32>,
    depth: u64,
    /// Registered blocks whose parent this is.
    children: u32,
    /// The pool's clock when it was last let go.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Block {
    holders: u32,
    entry: Option<Entry>,
}

/// All blocks of a KV cache.
#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Tokens of each registered block, one block after the other.
    tokens: Vec<u32>,
    size: usize,
    /// Empty blocks; the last is given out first.
    free: Vec<u32>,
    names: HashMap<Name, u32>,
    /// Blocks that may be evicted, by value.
    evictable: BTreeSet<(u64, u32)>,
    /// Registered blocks that nobody holds, evictable at once or after others.
    idle: usize,
    /// Blocks taken so far.
    clock: u64,
    evictions: u64,
}

impl BlockPool {
    /// A pool of `total` empty blocks of `size` positions, numbered from 0.
    pub fn new(total: usize, size: usize) -> Self {
        let total_u32 = u32::try_from(total).expect("block numbers are 32 bits");
        Self {
            blocks: vec![Block::default(); total],
            tokens: vec![0; total * size],
            size,
            free: (0..total_u32).rev().collect(),
            names: HashMap::with_capacity(total),
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
    pub fn count(&self) -> Blocks {
        let (cached, free) = (self.idle, self.free.len());
        Blocks { used: self.total() - cached - free, cached, free }
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
        let entry = &mut self.blocks[block as usize];
        entry.holders += 1;
        if entry.holders == 1 {
            let entry = entry.entry.expect("only registered blocks are without holders");
            self.evictable.remove(&(value(&entry), block));
            self.idle -= 1;
        }
    }

    /// One holder less. The last leaves a registered block to the cache, any other empty.
    pub fn release(&mut self, block: u32) {
        let clock = self.clock;
        let entry = &mut self.blocks[block as usize];
        entry.holders = entry.holders.checked_sub(1).expect("it was held");
        if entry.holders > 0 {
            return;
        }
        match &mut entry.entry {
            Some(entry) => {
                entry.used = clock;
                self.idle += 1;
                self.offer(block);
            }
            None => self.free.push(block),
        }
    }

    /// The block of this name, if it holds `tokens` behind the block named `parent`.
    pub fn find(&self, name: Name, parent: Name, tokens: &[u32]) -> Option<u32> {
        let block = *self.names.get(&name)?;
        let entry = self.blocks[block as usize].entry?;
        (entry.parent == parent && self.tokens(block) == tokens).then_some(block)
    }

    /// Makes a held block known under its name.
    pub(crate) fn register(&mut self, block: u32, full: Full<'_>) -> Registered {
        if let Some(found) = self.find(full.name, full.parent, full.tokens) {
            return Registered::Already(found);
        }
        if self.names.contains_key(&full.name) {
            return Registered::Taken;
        }
        if let Some(parent) = full.parent_block {
            let parent = self.blocks[parent as usize].entry.as_mut();
            parent.expect("chains are registered from their root on").children += 1;
        }
        self.names.insert(full.name, block);
        let at = block as usize * self.size;
        self.tokens[at..at + self.size].copy_from_slice(full.tokens);
        let Full { name, parent, parent_block, depth, .. } = full;
        let depth = depth as u64;
        let entry = Entry { name, parent, parent_block, depth, children: 0, used: self.clock };
        self.blocks[block as usize].entry = Some(entry);
        Registered::New
    }

    fn tokens(&self, block: u32) -> &[u32] {
        &self.tokens[block as usize * self.size..][..self.size]
    }

    /// Lets an idle block be evicted, unless others must go before it.
    fn offer(&mut self, block: u32) {
        let Block { holders: 0, entry: Some(entry) } = &self.blocks[block as usize] else { return };
        if entry.children == 0 {
            self.evictable.insert((value(entry), block));
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, block) = self.evictable.pop_first()?;
        let entry = self.blocks[block as usize].entry.take().expect("only those are evictable");
        self.names.remove(&entry.name);
        self.idle -= 1;
        self.evictions += 1;
        if let Some(parent) = entry.parent_block {
            let above = self.blocks[parent as usize].entry.as_mut();
            above.expect("a chain goes from its end").children -= 1;
            self.offer(parent);
        }
        Some(block)
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
            if let Some(parent) = block.entry.and_then(|entry| entry.parent_block) {
                children[parent as usize] += 1;
            }
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        let (mut idle, mut evictable) = (0, 0);
        for (number, block) in self.blocks.iter().enumerate() {
            assert_eq!(block.holders, holders[number], "holders of block {number}");
            let Some(entry) = block.entry else {
                let is_free = free.binary_search(&(number as u32)).is_ok();
                assert_eq!(is_free, block.holders == 0, "block {number}");
                continue;
            };
            assert_eq!(entry.children, children[number], "children of block {number}");
            assert_eq!(self.names.get(&entry.name), Some(&(number as u32)));
            idle += usize::from(block.holders == 0);
            let offered = self.evictable.contains(&(value(&entry), number as u32));
            assert_eq!(offered, block.holders == 0 && entry.children == 0, "block {number}");
            evictable += usize::from(offered);
        }
        assert_eq!((idle, evictable), (self.idle, self.evictable.len()));
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a block is free once");
    }
}

/// What a block is worth: higher goes later.
fn value(entry: &Entry) -> u64 {
    entry.used + BONUS * entry.depth
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 2;

    /// Takes and registers a chain of blocks; the caller holds them.
    fn chain(pool: &mut BlockPool, seed: u32, len: usize) -> Vec<u32> {
        let mut parent = Name::root(b"test");
        let mut blocks: Vec<u32> = Vec::new();
        for depth in 0..len {
            let tokens = [seed, depth as u32];
            let name = parent.child(&tokens);
            let block = pool.take().unwrap();
            let parent_block = blocks.last().copied();
            let full = Full { name, parent, parent_block, depth, tokens: &tokens };
            assert_eq!(pool.register(block, full), Registered::New);
            blocks.push(block);
            parent = name;
        }
        blocks
    }

    /// How much of a chain is still there.
    fn found(pool: &BlockPool, seed: u32, len: usize) -> usize {
        let mut parent = Name::root(b"test");
        (0..len as u32)
            .take_while(|&depth| {
                let before = parent;
                parent = before.child(&[seed, depth]);
                pool.find(parent, before, &[seed, depth]).is_some()
            })
            .count()
    }

    #[test]
    fn what_is_let_go_is_cached_if_registered_and_free_if_not() {
        let mut pool = BlockPool::new(4, SIZE);
        let held = chain(&mut pool, 1, 2);
        let plain = pool.take().unwrap();
        assert_eq!(pool.count(), Blocks { used: 3, cached: 0, free: 1 });
        held.iter().for_each(|&block| pool.release(block));
        pool.release(plain);
        assert_eq!(pool.count(), Blocks { used: 0, cached: 2, free: 2 });
        assert_eq!((pool.available(), found(&pool, 1, 2)), (4, 2));
        pool.hold(held[0]);
        assert_eq!(pool.count(), Blocks { used: 1, cached: 1, free: 2 });
    }

    #[test]
    fn the_end_of_a_chain_is_evicted_before_its_root() {
        let mut pool = BlockPool::new(3, SIZE);
        let held = chain(&mut pool, 1, 3);
        held.iter().for_each(|&block| pool.release(block));
        for left in [2, 1, 0] {
            pool.take().unwrap();
            assert_eq!(found(&pool, 1, 3), left);
        }
        assert_eq!(pool.take(), None);
        assert_eq!(pool.evictions(), 3);
    }

    #[test]
    fn many_small_requests_leave_a_long_conversation_alone() {
        let mut pool = BlockPool::new(44, SIZE);
        let conversation = chain(&mut pool, 0, 40);
        conversation.iter().for_each(|&block| pool.release(block));
        for seed in 1..1000 {
            let small = chain(&mut pool, seed, 2);
            small.iter().for_each(|&block| pool.release(block));
        }
        assert_eq!(found(&pool, 0, 40), 40);
        // It is not kept for ever either.
        for seed in 1000..5000 {
            let small = chain(&mut pool, seed, 2);
            small.iter().for_each(|&block| pool.release(block));
        }
        assert!(found(&pool, 0, 40) < 40);
    }

    #[test]
    fn of_equal_chains_the_older_goes_first() {
        let mut pool = BlockPool::new(6, SIZE);
        for seed in [1, 2] {
            let held = chain(&mut pool, seed, 3);
            held.iter().for_each(|&block| pool.release(block));
        }
        pool.take().unwrap();
        assert_eq!((found(&pool, 1, 3), found(&pool, 2, 3)), (2, 3));
    }

    #[test]
    fn a_block_is_found_by_its_tokens_and_its_parent_not_by_its_name_alone() {
        let mut pool = BlockPool::new(2, SIZE);
        let (root, other) = (Name::root(b"a"), Name::root(b"b"));
        let name = root.child(&[1, 2]);
        let block = pool.take().unwrap();
        let full = Full { name, parent: root, parent_block: None, depth: 0, tokens: &[1, 2] };
        assert_eq!(pool.register(block, full), Registered::New);
        assert_eq!(pool.find(name, root, &[1, 2]), Some(block));
        assert_eq!(pool.find(name, root, &[1, 3]), None);
        assert_eq!(pool.find(name, other, &[1, 2]), None);
        let twin = pool.take().unwrap();
        assert_eq!(pool.register(twin, full), Registered::Already(block));
        let forged = Full { tokens: &[9, 9], ..full };
        assert_eq!(pool.register(twin, forged), Registered::Taken);
    }
}
