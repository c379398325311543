//! Chooses computed blocks that are to be stored, and copies them out of the cache.

use super::{DiskWrite, Pace};
use crate::Runner;
use base::Name;
use sched::{Scheduler, Slot};
use std::collections::{HashMap, VecDeque};
use store::{Keyspace, ToWrite};

/// Tokens of a running sequence after which they are stored before its end.
const STEP: usize = 2048;
/// Most blocks that wait to be copied.
const MAX_WAITING: usize = 1 << 16;

/// A full block that is to be stored.
#[derive(Clone, Debug)]
struct Waiting {
    name: Name,
    parent: Name,
    tokens: Vec<u32>,
    /// Blocks before it.
    depth: usize,
}

/// Blocks that are to be stored.
pub(super) struct Keeper {
    write: DiskWrite,
    min_tokens: usize,
    waiting: VecDeque<Waiting>,
    /// Blocks of each running sequence that were chosen or found, counted from the first.
    noted: HashMap<Slot, usize>,
}

impl Keeper {
    pub fn new(write: DiskWrite, min_tokens: usize) -> Self {
        Self { write, min_tokens, waiting: VecDeque::new(), noted: HashMap::new() }
    }

    /// Blocks that wait to be copied.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Chooses the blocks that a sequence has computed since it was noted last: at its end, or when
    /// they are many.
    pub fn note(&mut self, scheduler: &Scheduler, slot: Slot, ends: bool) {
        if self.write == DiskWrite::Off {
            return;
        }
        let computed = scheduler.registered(slot);
        let noted = self.noted.get(&slot).copied().unwrap_or(0);
        let Some((_, _, tokens)) = scheduler.full_block(slot, 0) else { return };
        let block = tokens.len();
        let many = (computed - noted.min(computed)) * block >= STEP;
        if computed * block < self.min_tokens || !(ends || many) {
            return;
        }
        for depth in noted..computed {
            let Some((parent, name, tokens)) = scheduler.full_block(slot, depth) else { break };
            self.waiting.push_back(Waiting { name, parent, tokens: tokens.to_vec(), depth });
        }
        self.noted.insert(slot, computed);
        // The oldest have had most time to be copied, and are the first to be evicted.
        let over = self.waiting.len().saturating_sub(MAX_WAITING);
        self.waiting.drain(..over);
    }

    /// Forgets a sequence that ends.
    pub fn forget(&mut self, slot: Slot) {
        self.noted.remove(&slot);
    }

    /// Copies up to `most` bytes of blocks to the store, while it has buffers.
    pub fn work(
        &mut self,
        keys: &Keyspace,
        scheduler: &Scheduler,
        runner: &Runner,
        pace: Pace,
        most: usize,
    ) {
        let mut copied = 0;
        while copied < most && self.has_work() {
            self.drop_known(keys, scheduler, runner, pace);
            let count = self.run(keys.blocks_of_extent(0));
            let bytes = count * keys.layout().block_bytes(0);
            if count == 0 {
                return;
            }
            let Some(mut buffer) = keys.buffer(bytes) else { return };
            let mut blocks = Vec::with_capacity(count);
            let (parent, depth) = (self.waiting[0].parent, self.waiting[0].depth);
            while blocks.len() < count {
                let Waiting { name, parent, tokens, .. } = &self.waiting[0];
                let Some(block) = scheduler.find(*name, *parent, tokens) else { break };
                runner.read_block(block, &mut buffer);
                blocks.extend(self.waiting.pop_front().map(|it| (it.name, it.tokens)));
            }
            copied += buffer.len();
            let micros = pace.micros(blocks.len() * runner.block());
            keys.write(ToWrite {
                kind: 0,
                parent,
                depth: depth as u32,
                blocks,
                bytes: buffer,
                micros,
            });
        }
    }

    /// Drops blocks at the front that are stored, evicted from the cache, or not worth it.
    fn drop_known(&mut self, keys: &Keyspace, scheduler: &Scheduler, runner: &Runner, pace: Pace) {
        let bytes = keys.layout().block_bytes(0);
        let is_worth = self.write == DiskWrite::All || pace.is_worth(bytes, runner.block());
        while let Some(Waiting { name, parent, tokens, .. }) = self.waiting.front() {
            let is_there = scheduler.find(*name, *parent, tokens).is_some();
            if is_worth && is_there && !keys.has(0, *name) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Number of blocks at the front that follow each other, at most `most`.
    fn run(&self, most: usize) -> usize {
        let pairs = self.waiting.iter().zip(self.waiting.iter().skip(1));
        let follow = pairs.take_while(|(one, next)| next.parent == one.name).count();
        (follow + 1).min(most).min(self.waiting.len())
    }
}
