//! The store of a rank after the first, which does what rank 0 asks for with the bytes of its own
//! layers.

use super::copies::{PAUSE, copy_in, copy_out};
use super::memory::CacheMemory;
use super::options::DiskCache;
use super::parts::CacheParts;
use crate::ranks::disk_message::{DiskTask, KeptBlocks, NamedBlocks, OPEN_TICKET};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use store::{Arrival, HeldRuns, Keyspace, Run, ToWrite};

/// Time for a run to come after it was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers to rank 0 whether a store is open.
pub(super) const IS_OPEN: u32 = 2;
/// Whether the rank has the same weights, or what its store has, is not known yet.
pub(super) const IS_NOT_OPEN_YET: u32 = 1;
/// The rank has no store, or other weights.
pub(super) const IS_NONE: u32 = 0;

/// The store of a rank after the first.
#[derive(Default)]
pub(crate) struct FollowedDisk {
    cache: Option<DiskCache>,
    opened: Option<OpenDisk>,
}

/// What a store has of the model.
struct OpenDisk {
    keys: Keyspace,
    parts: CacheParts,
    /// What is read, by the tickets of rank 0.
    reads: HashMap<u64, FollowedRead>,
    /// Tickets that were given so far.
    tickets: u64,
}

/// Blocks that rank 0 has asked for.
struct FollowedRead {
    /// Runs, each with its ticket.
    runs: Vec<(u64, Run)>,
    /// Runs that came.
    came: HashMap<u64, Arrival>,
    /// Keeps them from being evicted.
    _held: HeldRuns,
}

impl FollowedDisk {
    /// A rank with this store, or none.
    pub fn new(cache: Option<DiskCache>) -> Self {
        Self { cache, opened: None }
    }

    /// Does what rank 0 asks for; returns the answer, and its ticket, where it expects one.
    pub fn work(&mut self, task: DiskTask, memory: &mut dyn CacheMemory) -> Option<(u64, u32)> {
        if let DiskTask::Open { digest } = &task {
            return Some((OPEN_TICKET, self.open(digest, memory)));
        }
        let opened = self.opened.as_mut();
        match (task, opened) {
            (DiskTask::Fill { ticket, kind, places }, disk) => {
                let fill = |disk: &mut OpenDisk| disk.fill(ticket, kind, &places, memory);
                return Some((ticket, disk.map_or(0, fill)));
            }
            (DiskTask::Keep(kept), Some(disk)) => disk.keep(kept, memory),
            (DiskTask::Read { ticket, named }, Some(disk)) => disk.read(ticket, &named),
            (DiskTask::Drop { ticket }, Some(disk)) => drop(disk.reads.remove(&ticket)),
            (DiskTask::Open { .. }, _) | (_, None) => {}
        }
        None
    }

    /// Writes what is left, for at most so long.
    pub fn finish(&self, most: Duration) {
        if let (Some(cache), Some(_)) = (&self.cache, &self.opened) {
            cache.store.flush(most);
        }
    }

    /// Opens what the store has of the model, where rank 0 has weights of this digest.
    fn open(&mut self, digest: &str, memory: &dyn CacheMemory) -> u32 {
        let Some(cache) = &self.cache else { return IS_NONE };
        let own = match cache.digest.get() {
            None => return IS_NOT_OPEN_YET,
            Some(own) => own,
        };
        let (Ok(parts), true) = (memory.parts(), own == digest) else { return IS_NONE };
        if self.opened.is_none() {
            let Ok(keys) = memory.open(&cache.store, digest) else { return IS_NONE };
            let (reads, tickets) = (HashMap::new(), 0);
            self.opened = Some(OpenDisk { keys, parts, reads, tickets });
        }
        let is_ready = self.opened.as_ref().is_some_and(|disk| disk.keys.is_ready());
        if is_ready { IS_OPEN } else { IS_NOT_OPEN_YET }
    }
}

impl OpenDisk {
    /// Copies blocks out of the cache for the store, if it has buffers.
    fn keep(&self, kept: KeptBlocks, memory: &dyn CacheMemory) {
        let KeptBlocks { named, parent, depth, micros, places, waits } = kept;
        let NamedBlocks { kind, blocks } = named;
        let own = self.keys.layout().block_bytes(kind);
        let end = Instant::now() + if waits { PATIENCE } else { Duration::ZERO };
        let mut buffer = self.keys.buffer(blocks.len() * own);
        while buffer.is_none() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            buffer = self.keys.buffer(blocks.len() * own);
        }
        let Some(mut bytes) = buffer else { return self.keys.count_dropped(blocks.len()) };
        for place in places {
            copy_out(&self.parts, kind, place, memory, bytes.append(own));
        }
        self.keys.write(ToWrite { kind, parent, depth, blocks, bytes, micros });
    }

    /// Begins to read blocks, as far as they are stored.
    fn read(&mut self, ticket: u64, named: &NamedBlocks) {
        let mut rest = named.blocks.as_slice();
        let found = self.keys.find(named.kind, rest.iter().map(|(name, _)| *name));
        let held = self.keys.hold(&found);
        let mut runs = Vec::new();
        for run in found {
            let (own, after) = rest.split_at(run.blocks);
            rest = after;
            self.tickets += 1;
            let tokens = own.iter().flat_map(|(_, tokens)| tokens).copied().collect();
            self.keys.read(self.tickets, run.clone(), tokens);
            runs.push((self.tickets, run));
        }
        self.reads.insert(ticket, FollowedRead { runs, came: HashMap::new(), _held: held });
    }

    /// Copies blocks that were read to their places in the cache; returns how many.
    fn fill(
        &mut self,
        ticket: u64,
        kind: usize,
        places: &[u32],
        memory: &mut dyn CacheMemory,
    ) -> u32 {
        let Some(mut read) = self.reads.remove(&ticket) else { return 0 };
        let (own, end) = (self.keys.layout().block_bytes(kind), Instant::now() + PATIENCE);
        let mut filled = 0;
        for (number, run) in &read.runs {
            let Some(arrival) = self.wait(*number, &mut read.came, end) else { break };
            let wanted = &places[filled..];
            let valid = arrival.blocks.min(wanted.len());
            for (at, place) in wanted[..valid].iter().enumerate() {
                copy_in(&self.parts, kind, *place, memory, &arrival.bytes[at * own..][..own]);
            }
            filled += valid;
            if valid < run.blocks {
                break;
            }
        }
        let runs: Vec<Run> = read.runs.into_iter().map(|(_, run)| run).collect();
        self.keys.count_use(&runs);
        filled as u32
    }

    /// Waits for a run until `end`; others that come meanwhile wait for their own turn.
    fn wait(
        &mut self,
        number: u64,
        came: &mut HashMap<u64, Arrival>,
        end: Instant,
    ) -> Option<Arrival> {
        while !came.contains_key(&number) {
            let arrival = self.keys.wait(end.saturating_duration_since(Instant::now()))?;
            let is_of = |read: &FollowedRead| read.runs.iter().any(|(it, _)| *it == arrival.ticket);
            match self.reads.values_mut().find(|read| is_of(read)) {
                Some(other) => _ = other.came.insert(arrival.ticket, arrival),
                // Of this one, or of one that was dropped.
                None => _ = came.insert(arrival.ticket, arrival),
            }
        }
        came.remove(&number)
    }
}
