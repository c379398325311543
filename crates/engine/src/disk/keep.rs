//! Chooses what is to be stored, and copies it out of the cache.
//!
//! Of rows that are looked at for ever, all full blocks are stored. Of rows with a window, what is
//! seen from the positions at which later sequences are likely to continue; and with states, the
//! snapshots there, with the rows of each group since the last full block.

use super::copies::copy_out;
use super::memory::CacheMemory;
use super::options::DiskWrite;
use super::pace::Pace;
use super::parts::{CachePart, CacheParts};
use crate::ranks::disk_message::{DiskTask, KeptBlocks, NamedBlocks};
use base::Name;
use sched::{Scheduler, Slot};
use std::collections::{HashMap, VecDeque};
use store::{Keyspace, ToWrite};

/// Tokens of a running sequence after which it is stored before its end from where a later one may
/// continue. Its blocks are stored as soon as they fill an extent, so that a process that is killed
/// loses little.
const STEP: usize = 2048;
/// Most blocks that wait to be copied.
const MAX_WAITING: usize = 1 << 16;

/// A part that is to be stored.
#[derive(Clone, Debug)]
struct Waiting {
    part: CachePart,
    name: Name,
    parent: Name,
    tokens: Vec<u32>,
    /// Full blocks before it.
    depth: usize,
    /// Tokens that need not be computed thanks to it.
    saves: usize,
}

/// What was chosen of a running sequence.
#[derive(Clone, Debug, Default)]
struct Noted {
    /// Full blocks that were computed when rows without a window were chosen last.
    computed: usize,
    /// Full blocks that were computed when positions were chosen last.
    placed: usize,
    /// For each group, the number of full blocks that were looked at.
    blocks: Vec<usize>,
    /// The last position at which a later sequence may continue.
    position: usize,
}

/// What is to be stored.
pub(super) struct Keeper {
    write: DiskWrite,
    min_tokens: usize,
    parts: CacheParts,
    waiting: VecDeque<Waiting>,
    noted: HashMap<Slot, Noted>,
}

impl Keeper {
    pub fn new(write: DiskWrite, min_tokens: usize, parts: CacheParts) -> Self {
        Self { write, min_tokens, parts, waiting: VecDeque::new(), noted: HashMap::new() }
    }

    /// Blocks that wait to be copied.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Chooses what a sequence has computed since it was noted last: when it ends or is preempted,
    /// when its blocks fill an extent of the store, or when that is much.
    pub fn note(&mut self, keys: Option<&Keyspace>, scheduler: &Scheduler, slot: Slot, ends: bool) {
        if self.write == DiskWrite::Off {
            return;
        }
        let Some((_, _, tokens)) = scheduler.full_block(slot, 0) else { return };
        let (block, computed) = (tokens.len(), scheduler.registered(slot));
        let (before, placed) =
            self.noted.get(&slot).map_or((0, 0), |noted| (noted.computed, noted.placed));
        let is_much = computed.saturating_sub(placed) * block >= STEP;
        let fills = computed > before && computed - before >= self.extent(keys);
        if computed * block < self.min_tokens || !(ends || is_much || fills) {
            return;
        }
        let mut noted = self.noted.remove(&slot).unwrap_or_default();
        noted.blocks.resize(self.parts.windows.len(), 0);
        noted.computed = computed;
        for group in self.parts.groups(false) {
            self.note_blocks(scheduler, slot, group, noted.blocks[group]..computed, block);
            noted.blocks[group] = computed.max(noted.blocks[group]);
        }
        if ends || is_much {
            noted.placed = computed;
            for point in self.points(scheduler, slot, &noted, block, ends) {
                self.note_point(scheduler, slot, point, &mut noted, block);
            }
        }
        self.noted.insert(slot, noted);
        // The oldest have had most time to be copied, and are the first to be evicted.
        let over = self.waiting.len().saturating_sub(MAX_WAITING);
        self.waiting.drain(..over);
    }

    /// Blocks without a window that fill an extent, in a store that is open.
    fn extent(&self, keys: Option<&Keyspace>) -> usize {
        let group = self.parts.windows.iter().position(|windowed| !windowed);
        keys.zip(group).map_or(usize::MAX, |(keys, group)| {
            keys.blocks_of_extent(self.parts.kind(CachePart::Block(group)))
        })
    }

    /// Positions after the last noted one at which later sequences may continue from stored blocks.
    fn points(
        &self,
        scheduler: &Scheduler,
        slot: Slot,
        noted: &Noted,
        block: usize,
        ends: bool,
    ) -> Vec<usize> {
        let (last, full) = (noted.position, noted.computed * block);
        if self.parts.states {
            // The rows of a running sequence since its last full block have no name yet.
            let end = if ends { usize::MAX } else { full + 1 };
            return scheduler.resume_points(slot, last + 1..end);
        }
        if !self.parts.windows.contains(&true) {
            return Vec::new();
        }
        let mut points = scheduler.resume_points(slot, last + 1..full);
        points.iter_mut().for_each(|point| *point = *point / block * block);
        points.push(full);
        points.retain(|&point| point > last);
        points.dedup();
        points
    }

    /// Chooses what is needed to continue at a position besides the rows without a window.
    fn note_point(
        &mut self,
        scheduler: &Scheduler,
        slot: Slot,
        point: usize,
        noted: &mut Noted,
        block: usize,
    ) {
        let (saves, index) = (point - noted.position, point / block);
        noted.position = point;
        for group in self.parts.groups(true) {
            let first = scheduler.first_seen(group, point).max(noted.blocks[group]);
            self.note_blocks(scheduler, slot, group, first..index, saves);
            noted.blocks[group] = noted.blocks[group].max(index);
        }
        if !self.parts.states {
            return;
        }
        let Some((parent, tokens)) = scheduler.before(slot, point) else { return };
        let groups = 0..noted.blocks.len();
        let tails =
            groups.filter(|&group| scheduler.sees_own_block(group, point)).map(CachePart::Tail);
        self.waiting.extend(tails.chain([CachePart::State]).map(|part| Waiting {
            part,
            name: parent.state(tokens),
            parent,
            tokens: tokens.to_vec(),
            depth: index,
            saves,
        }));
    }

    /// Chooses full blocks of a group.
    fn note_blocks(
        &mut self,
        scheduler: &Scheduler,
        slot: Slot,
        group: usize,
        indices: std::ops::Range<usize>,
        saves: usize,
    ) {
        let part = CachePart::Block(group);
        let blocks = indices.map_while(|depth| {
            let (parent, name, tokens) = scheduler.full_block(slot, depth)?;
            Some(Waiting { part, name, parent, tokens: tokens.to_vec(), depth, saves })
        });
        self.waiting.extend(blocks);
    }

    /// Forgets a sequence that ends.
    pub fn forget(&mut self, slot: Slot) {
        self.noted.remove(&slot);
    }

    /// Copies up to `most` bytes, or one part, to the store, while it has buffers. Other ranks wait
    /// for theirs if they may (`waits`), and drop blocks otherwise.
    pub fn work(
        &mut self,
        keys: &Keyspace,
        scheduler: &Scheduler,
        memory: &mut dyn CacheMemory,
        pace: Pace,
        (most, waits): (usize, bool),
    ) {
        let mut copied = 0;
        while copied < most {
            self.drop_useless(keys, scheduler, pace);
            let Some(Waiting { part, parent, depth, .. }) = self.waiting.front() else { return };
            let (part, parent, depth) = (*part, *parent, *depth as u32);
            let kind = self.parts.kind(part);
            let count = self.run(keys.blocks_of_extent(kind));
            let own = keys.layout().block_bytes(kind);
            let Some(mut bytes) = keys.buffer(count * own) else { return };
            let (mut blocks, mut places) = (Vec::with_capacity(count), Vec::with_capacity(count));
            let mut saves = 0;
            while blocks.len() < count
                && let Some(next) = self.waiting.front()
                && let Some(place) = next.place(scheduler)
            {
                copy_out(&self.parts, kind, place, memory, bytes.append(own));
                saves += next.saves;
                places.push(place);
                let next = self.waiting.pop_front().map(|next| (next.name, next.tokens));
                blocks.extend(next);
            }
            copied += bytes.len();
            let micros = pace.micros(saves);
            if memory.has_other_ranks() {
                let named = NamedBlocks { kind, blocks: blocks.clone() };
                let kept = KeptBlocks { named, parent, depth, micros, places, waits };
                memory.tell_others(&DiskTask::Keep(kept));
            }
            keys.write(ToWrite { kind, parent, depth, blocks, bytes, micros });
        }
    }

    /// Drops parts at the front that are stored, evicted from the cache, or not worth it.
    fn drop_useless(&mut self, keys: &Keyspace, scheduler: &Scheduler, pace: Pace) {
        while let Some(front) = self.waiting.front() {
            let kind = self.parts.kind(front.part);
            let bytes = keys.layout().block_bytes(kind);
            let is_worth = self.write == DiskWrite::All || pace.is_worth(bytes, front.saves);
            if is_worth && !keys.has(kind, front.name) {
                if front.place(scheduler).is_some() {
                    return;
                }
                keys.count_dropped(1);
            }
            self.waiting.pop_front();
        }
    }

    /// Number of full blocks at the front that follow each other, at most `most`; or one part.
    fn run(&self, most: usize) -> usize {
        let pairs = self.waiting.iter().zip(self.waiting.iter().skip(1));
        let follow = pairs.take_while(|(one, next)| {
            let is_block = matches!(one.part, CachePart::Block(_));
            is_block && next.part == one.part && next.parent == one.name
        });
        (follow.count() + 1).min(most)
    }
}

impl Waiting {
    /// The block, or the state slot, that holds it.
    fn place(&self, scheduler: &Scheduler) -> Option<u32> {
        let Self { part, name, parent, tokens, .. } = self;
        match *part {
            CachePart::Block(group) => scheduler.find(group, *name, *parent, tokens),
            CachePart::Tail(group) => scheduler.find_tail(group, *parent, tokens),
            CachePart::State => scheduler.find_state(*parent, tokens),
        }
    }
}
