//! Finds stored blocks that waiting sequences need, and copies them into the cache.

use super::Pace;
use crate::Runner;
use sched::{Scheduler, Slot};
use std::collections::{HashMap, VecDeque};
use store::{Arrival, Keyspace, Run};

/// Bytes that are being read or wait to be copied into the cache.
const MAX_IN_FLIGHT: usize = 64 << 20;

/// A sequence that expects blocks.
struct Restore {
    slot: Slot,
    /// Blocks of the cache that are not filled yet, in the order of the chain.
    blocks: VecDeque<u32>,
    /// Runs that are not copied yet, in the same order.
    runs: VecDeque<ExpectedRun>,
    /// All runs, whose use is counted at the end.
    all: Vec<Run>,
}

/// A run of blocks that is expected.
struct ExpectedRun {
    run: Run,
    /// The tokens of its blocks.
    tokens: Vec<u32>,
    progress: Progress,
}

enum Progress {
    Waiting,
    /// Asked for under a ticket.
    Asked(u64),
    /// Came, and this many of its blocks are copied.
    Came(Arrival, usize),
}

/// Waiting sequences and what they expect.
pub(super) struct Restorer {
    min_tokens: usize,
    /// Requests that were accepted and not looked at yet.
    accepted: Vec<Slot>,
    active: Vec<Restore>,
    /// Tickets that were given so far.
    tickets: u64,
    /// Bytes of runs by ticket, until they are copied.
    in_flight: HashMap<u64, usize>,
}

impl Restorer {
    pub fn new(min_tokens: usize) -> Self {
        let (accepted, active, in_flight) = Default::default();
        Self { min_tokens, accepted, active, tickets: 0, in_flight }
    }

    pub fn accepted(&mut self, slot: Slot) {
        self.accepted.push(slot);
    }

    /// Whether a request was accepted and not looked at yet.
    pub fn is_accepted(&self, slot: Slot) -> bool {
        self.accepted.contains(&slot)
    }

    /// Forgets a sequence that ends. What was asked for on its behalf is dropped when it comes.
    pub fn forget(&mut self, slot: Slot) {
        self.accepted.retain(|other| *other != slot);
        let Some(at) = self.active.iter().position(|restore| restore.slot == slot) else { return };
        for expected in self.active.remove(at).runs {
            if let Progress::Came(arrival, _) = expected.progress {
                self.in_flight.remove(&arrival.ticket);
            }
        }
    }

    /// Whether sequences expect blocks.
    pub fn is_waiting(&self) -> bool {
        !self.active.is_empty()
    }

    /// Takes a run that came.
    pub fn take(&mut self, arrival: Arrival) {
        let mut runs = self.active.iter_mut().flat_map(|restore| &mut restore.runs);
        let asked = runs.find(
            |expected| matches!(expected.progress, Progress::Asked(ticket) if ticket == arrival.ticket),
        );
        match asked {
            Some(expected) => expected.progress = Progress::Came(arrival, 0),
            None => drop(self.in_flight.remove(&arrival.ticket)),
        }
    }

    /// Copies up to `most` bytes of what came into the cache, looks at requests that were accepted,
    /// and asks for more.
    pub fn work(
        &mut self,
        keys: &Keyspace,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        pace: Pace,
        most: usize,
    ) {
        while let Some(arrival) = keys.arrived() {
            self.take(arrival);
        }
        let (mut left, mut at) = (most, 0);
        while at < self.active.len() {
            if !self.active[at].copy_in(scheduler, runner, &mut self.in_flight, &mut left) {
                at += 1;
                continue;
            }
            let Restore { slot, all, .. } = self.active.remove(at);
            scheduler.end_restore(slot);
            keys.count_use(&all);
        }
        for slot in std::mem::take(&mut self.accepted) {
            self.active.extend(self.begin(slot, keys, scheduler, runner, pace));
        }
        self.ask(keys);
    }

    /// Looks for the blocks that an accepted request needs, if restoring them is worth it.
    fn begin(
        &self,
        slot: Slot,
        keys: &Keyspace,
        scheduler: &mut Scheduler,
        runner: &Runner,
        pace: Pace,
    ) -> Option<Restore> {
        let missing = scheduler.missing(slot);
        let block = runner.block();
        if missing.is_empty() || missing.end * block < self.min_tokens {
            return None;
        }
        let names = missing.clone().map_while(|index| Some(scheduler.full_block(slot, index)?.1));
        let all = keys.find(0, names);
        let count: usize = all.iter().map(|run| run.blocks).sum();
        let bytes = count * keys.layout().block_bytes(0);
        if count == 0 || !pace.is_worth(bytes, count * block) {
            return None;
        }
        let blocks = scheduler.begin_restore(slot, count)?;
        let mut index = missing.start;
        let expect = |run: &Run| {
            let range = index..index + run.blocks;
            index = range.end;
            let tokens = range.filter_map(|index| Some(scheduler.full_block(slot, index)?.2));
            let tokens = tokens.collect::<Vec<_>>().concat();
            ExpectedRun { run: run.clone(), tokens, progress: Progress::Waiting }
        };
        let runs = all.iter().map(expect).collect();
        Some(Restore { slot, blocks: blocks.into(), runs, all })
    }

    /// Asks for runs, as far as memory for them is allowed.
    fn ask(&mut self, keys: &Keyspace) {
        let bytes = keys.layout().block_bytes(0);
        for expected in self.active.iter_mut().flat_map(|restore| &mut restore.runs) {
            let ExpectedRun { run, tokens, progress } = expected;
            if !matches!(progress, Progress::Waiting) {
                continue;
            }
            let used: usize = self.in_flight.values().sum();
            if used > 0 && used + run.blocks * bytes > MAX_IN_FLIGHT {
                return;
            }
            self.tickets += 1;
            self.in_flight.insert(self.tickets, run.blocks * bytes);
            *progress = Progress::Asked(self.tickets);
            keys.read(self.tickets, run.clone(), std::mem::take(tokens));
        }
    }
}

impl Restore {
    /// Copies up to `left` bytes of what came; returns whether nothing more is expected.
    fn copy_in(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        in_flight: &mut HashMap<u64, usize>,
        left: &mut usize,
    ) -> bool {
        while let Some(ExpectedRun { run, progress, .. }) = self.runs.front_mut() {
            let Progress::Came(arrival, copied) = progress else { return false };
            let bytes = arrival.bytes.len() / run.blocks;
            while *copied < arrival.blocks {
                if *left < bytes {
                    return false;
                }
                let Some(block) = self.blocks.pop_front() else { break };
                runner.write_block(block, &arrival.bytes[*copied * bytes..][..bytes]);
                scheduler.restored(self.slot);
                *copied += 1;
                *left -= bytes;
            }
            in_flight.remove(&arrival.ticket);
            if arrival.blocks < run.blocks {
                return true;
            }
            self.runs.pop_front();
        }
        true
    }
}
