//! Finds what is stored of what waiting sequences need, and copies it into the cache.

use super::copies::copy_in;
use super::memory::CacheMemory;
use super::pace::Pace;
use super::parts::{CachePart, CacheParts, StoredHere};
use crate::observe::metrics::Metrics;
use crate::ranks::disk_message::{DiskTask, NamedBlocks};
use base::Name;
use sched::{RestorePlace, RestorePlan, Scheduler, Slot};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use store::{Arrival, HeldRuns, Keyspace, Run};

/// Bytes copied into the cache between two steps while other sequences decode.
const COPIED_IN: usize = 6 << 20;
/// Bytes that are being read or wait to be copied into the cache, while other sequences decode and
/// otherwise.
const IN_FLIGHT_BUSY: usize = 2 * COPIED_IN;
const IN_FLIGHT: usize = 64 << 20;
/// Time without any progress after which a sequence expects nothing more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that are looked at again at once, after there was no space for what they need.
const RETRIES: usize = 4;

/// A sequence that expects blocks and states.
struct Restore {
    slot: Slot,
    /// Places in the cache that are not filled yet.
    places: VecDeque<RestorePlace>,
    /// Runs that are not copied yet, in the same order.
    runs: VecDeque<ExpectedRun>,
    /// All runs, whose use is counted at the end.
    all: Vec<Run>,
    /// Keeps them from being evicted.
    _held: HeldRuns,
    /// When they were looked for, and when the last of them was copied.
    start: Instant,
    last: Instant,
    /// Bytes copied so far.
    bytes: usize,
}

/// A run of blocks that is expected.
struct ExpectedRun {
    run: Run,
    /// Name and tokens of each of its blocks.
    blocks: Vec<(Name, Vec<u32>)>,
    progress: Progress,
    others: OtherParts,
}

/// What other ranks have done with their parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherParts {
    /// They read them, once the run is asked for.
    Read,
    /// They were told to copy them into their caches.
    Told,
    /// They have answered how many they have copied.
    Copied,
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
    parts: CacheParts,
    metrics: Metrics,
    /// Requests that were accepted and not looked at yet.
    accepted: Vec<Slot>,
    /// Requests for which there was no space, and the number of sequences that ran then.
    postponed: VecDeque<(Slot, usize)>,
    active: Vec<Restore>,
    /// Tickets that were given so far.
    tickets: u64,
    /// Bytes of runs by ticket, until they are copied.
    in_flight: HashMap<u64, usize>,
    /// Tickets of runs that nothing waits for any more, and what other ranks have done for them.
    dropped: Vec<(u64, OtherParts)>,
}

impl Restorer {
    pub fn new(min_tokens: usize, parts: CacheParts, metrics: Metrics) -> Self {
        let (accepted, postponed, active, in_flight, dropped) = Default::default();
        let tickets = 0;
        Self {
            min_tokens,
            parts,
            metrics,
            accepted,
            postponed,
            active,
            tickets,
            in_flight,
            dropped,
        }
    }

    pub fn accepted(&mut self, slot: Slot) {
        self.accepted.push(slot);
    }

    /// Whether a request was accepted and not looked at yet.
    pub fn is_accepted(&self, slot: Slot) -> bool {
        self.accepted.contains(&slot)
    }

    /// Forgets a sequence that ends.
    pub fn forget(&mut self, slot: Slot) {
        self.accepted.retain(|other| *other != slot);
        self.postponed.retain(|(other, _)| *other != slot);
        if let Some(at) = self.active.iter().position(|restore| restore.slot == slot) {
            self.remove(at);
        }
    }

    /// Forgets requests that run by now.
    pub fn forget_running(&mut self, scheduler: &Scheduler) {
        self.accepted.retain(|slot| scheduler.may_restore(*slot));
    }

    /// Removes a sequence that expects nothing more. What was asked for on its behalf is dropped
    /// when it comes.
    fn remove(&mut self, at: usize) -> Restore {
        let mut restore = self.active.remove(at);
        for expected in restore.runs.drain(..) {
            let ticket = match expected.progress {
                Progress::Waiting => continue,
                Progress::Asked(ticket) => ticket,
                Progress::Came(arrival, _) => {
                    self.in_flight.remove(&arrival.ticket);
                    arrival.ticket
                }
            };
            self.dropped.push((ticket, expected.others));
        }
        restore
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

    /// Copies what came into the cache, looks at requests that were accepted, and asks for more.
    /// `busy` is whether other sequences decode, which would wait for much at a time.
    pub fn work(
        &mut self,
        keys: &Keyspace,
        scheduler: &mut Scheduler,
        memory: &mut dyn CacheMemory,
        pace: Pace,
        busy: bool,
    ) {
        while let Some(arrival) = keys.arrived() {
            self.take(arrival);
        }
        let (mut left, in_flight) = match busy {
            true => (COPIED_IN, IN_FLIGHT_BUSY),
            false => (usize::MAX, IN_FLIGHT),
        };
        let mut at = 0;
        while at < self.active.len() {
            let restore = &mut self.active[at];
            let is_over = restore.copy_in(
                (keys, &self.parts),
                scheduler,
                memory,
                &mut self.in_flight,
                &mut left,
            );
            if !is_over && restore.last.elapsed() < PATIENCE {
                at += 1;
                continue;
            }
            let Restore { slot, all, start, bytes, .. } = self.remove(at);
            scheduler.end_restore(slot);
            self.metrics.restored(start.elapsed(), bytes);
            keys.count_use(&all);
        }
        self.begin_accepted(keys, scheduler, pace);
        self.ask(keys, memory, in_flight);
        for (ticket, others) in self.dropped.drain(..) {
            match others {
                OtherParts::Read => memory.tell_others(&DiskTask::Drop { ticket }),
                OtherParts::Told => drop(memory.answer_of_others(ticket)),
                OtherParts::Copied => {}
            }
        }
    }

    /// Looks at requests that were accepted, and at some for which there was no space, once others
    /// have ended.
    fn begin_accepted(&mut self, keys: &Keyspace, scheduler: &mut Scheduler, pace: Pace) {
        let running = scheduler.running();
        let again = self.postponed.iter().filter(|(_, then)| *then != running);
        let again: Vec<Slot> = again.map(|(slot, _)| *slot).take(RETRIES).collect();
        self.postponed.retain(|(slot, _)| !again.contains(slot));
        for slot in again.into_iter().chain(std::mem::take(&mut self.accepted)) {
            if !scheduler.may_restore(slot) {
                continue;
            }
            let Some((plan, runs)) = self.find(slot, keys, scheduler, pace) else {
                keys.count_query(false);
                continue;
            };
            let Some(places) = scheduler.begin_restore(slot, &plan) else {
                self.postponed.push_back((slot, running));
                continue;
            };
            keys.count_query(true);
            let all: Vec<Run> = runs.iter().map(|expected| expected.run.clone()).collect();
            let (_held, start) = (keys.hold(&all), Instant::now());
            let places = places.into();
            self.active.push(Restore {
                slot,
                places,
                runs,
                all,
                _held,
                start,
                last: start,
                bytes: 0,
            });
        }
    }

    /// Looks for what an accepted request needs, if restoring it is worth it.
    fn find(
        &self,
        slot: Slot,
        keys: &Keyspace,
        scheduler: &Scheduler,
        pace: Pace,
    ) -> Option<(RestorePlan, VecDeque<ExpectedRun>)> {
        let plan = scheduler.plan_restore(slot, &StoredHere { keys, parts: &self.parts });
        let is_worth = |plan: &RestorePlan| {
            let bytes = self.needed(plan).map(|kind| keys.layout().block_bytes(kind)).sum();
            plan.position >= self.min_tokens && pace.is_worth(bytes, plan.position - plan.known)
        };
        let plan = plan.filter(is_worth)?;
        let runs = self.runs(slot, keys, scheduler, &plan)?;
        Some((plan, runs))
    }

    /// The kinds of what a plan lacks, in the order of its places.
    fn needed(&self, plan: &RestorePlan) -> impl Iterator<Item = usize> {
        let blocks = (0..).zip(&plan.blocks);
        let blocks = blocks.flat_map(|(group, blocks)| blocks.iter().map(move |_| group));
        let tails = plan.tails.iter().map(|&group| CachePart::Tail(group));
        let state = plan.state.then_some(CachePart::State);
        blocks.map(CachePart::Block).chain(tails).chain(state).map(|part| self.parts.kind(part))
    }

    /// Where the store has what a plan lacks, in the order of its places. `None` if something has
    /// vanished meanwhile.
    fn runs(
        &self,
        slot: Slot,
        keys: &Keyspace,
        scheduler: &Scheduler,
        plan: &RestorePlan,
    ) -> Option<VecDeque<ExpectedRun>> {
        let (parent, rest) = scheduler.before(slot, plan.position)?;
        let blocks = plan.blocks.iter().flatten().map(|&index| {
            let (_, name, tokens) = scheduler.full_block(slot, index)?;
            Some((name, tokens))
        });
        // The names and tokens of tails and the state.
        let others = std::iter::repeat(Some((parent.state(rest), rest)));
        let named = blocks.chain(others).zip(self.needed(plan));
        let needed: Vec<(usize, Name, &[u32])> = named
            .map(|(named, kind)| named.map(|(name, tokens)| (kind, name, tokens)))
            .collect::<Option<_>>()?;
        let mut expected = VecDeque::new();
        for mut same in needed.chunk_by(|one, other| one.0 == other.0) {
            for run in keys.find(same[0].0, same.iter().map(|(_, name, _)| *name)) {
                let (own, rest) = same.split_at(run.blocks);
                let blocks = own.iter().map(|(_, name, tokens)| (*name, tokens.to_vec())).collect();
                let progress = Progress::Waiting;
                expected.push_back(ExpectedRun { run, blocks, progress, others: OtherParts::Read });
                same = rest;
            }
            if !same.is_empty() {
                return None;
            }
        }
        Some(expected)
    }

    /// Asks for runs while fewer than `most` bytes are in flight, or for one.
    fn ask(&mut self, keys: &Keyspace, memory: &mut dyn CacheMemory, most: usize) {
        for expected in self.active.iter_mut().flat_map(|restore| &mut restore.runs) {
            let ExpectedRun { run, blocks, progress, .. } = expected;
            if !matches!(progress, Progress::Waiting) {
                continue;
            }
            let used: usize = self.in_flight.values().sum();
            let bytes = run.blocks * keys.layout().block_bytes(run.kind);
            if used > 0 && used + bytes > most {
                return;
            }
            self.tickets += 1;
            self.in_flight.insert(self.tickets, bytes);
            *progress = Progress::Asked(self.tickets);
            let tokens = blocks.iter().flat_map(|(_, tokens)| tokens).copied().collect();
            keys.read(self.tickets, run.clone(), tokens);
            if memory.has_other_ranks() {
                let named = NamedBlocks { kind: run.kind, blocks: blocks.clone() };
                memory.tell_others(&DiskTask::Read { ticket: self.tickets, named });
            }
        }
    }
}

impl Restore {
    /// Forgets what is not restored because another rank has its part of so many blocks of the
    /// first run alone: it is stored again once it is computed.
    fn forget(&self, restored: usize, keys: &Keyspace) {
        for (at, ExpectedRun { run, blocks, .. }) in self.runs.iter().enumerate() {
            let restored = if at == 0 { restored } else { 0 };
            keys.forget(run.kind, blocks.iter().skip(restored).map(|(name, _)| *name));
        }
    }

    /// Copies parts of what came while `left` bytes are left; returns whether nothing more is
    /// expected.
    fn copy_in(
        &mut self,
        (keys, parts): (&Keyspace, &CacheParts),
        scheduler: &mut Scheduler,
        memory: &mut dyn CacheMemory,
        in_flight: &mut HashMap<u64, usize>,
        left: &mut usize,
    ) -> bool {
        while let Some(expected) = self.runs.front_mut() {
            let ExpectedRun { run, progress: Progress::Came(arrival, copied), others, .. } =
                expected
            else {
                return false;
            };
            if *others == OtherParts::Read {
                // They copy while this rank does.
                let places = self.places.iter().take(arrival.blocks).map(|it| place_of(*it));
                let (ticket, kind, places) = (arrival.ticket, run.kind, places.collect());
                memory.tell_others(&DiskTask::Fill { ticket, kind, places });
                *others = OtherParts::Told;
            }
            let bytes = arrival.bytes.len() / run.blocks;
            while *copied < arrival.blocks {
                if *left == 0 {
                    return false;
                }
                let Some(place) = self.places.pop_front() else { break };
                let own = &arrival.bytes[*copied * bytes..][..bytes];
                copy_in(parts, run.kind, place_of(place), memory, own);
                *copied += 1;
                *left = left.saturating_sub(bytes);
                self.bytes += bytes;
                self.last = Instant::now();
            }
            in_flight.remove(&arrival.ticket);
            let elsewhere = memory.answer_of_others(arrival.ticket).unwrap_or(u32::MAX);
            *others = OtherParts::Copied;
            let restored = (*copied).min(elsewhere as usize);
            (0..restored).for_each(|_| scheduler.restored(self.slot));
            let (all, everywhere) = (run.blocks, restored == *copied);
            if !everywhere {
                self.forget(restored, keys);
            }
            if restored < all {
                return true;
            }
            self.runs.pop_front();
        }
        true
    }
}

/// The block, or the state slot, that is to be filled.
fn place_of(place: RestorePlace) -> u32 {
    match place {
        RestorePlace::Block { block, .. } | RestorePlace::Tail { block, .. } => block,
        RestorePlace::State { slot } => slot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Kind, Layout, PageBuffer, Store, StoreOptions, ToWrite};

    #[test]
    fn what_came_for_a_sequence_that_gives_up_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(folder.path())).unwrap();
        let kinds = vec![Kind { layer_bytes: vec![8], is_state: false }];
        let root = Name::root(b"test");
        let keys = store.keyspace(root, Layout { positions: 1, layers: 0..1, kinds }, "{}");
        let name = root.child(&[1]);
        let mut bytes = keys.buffer(8).unwrap();
        bytes.append(8).fill(1);
        keys.write(ToWrite {
            kind: 0,
            parent: root,
            depth: 0,
            blocks: vec![(name, vec![1])],
            bytes,
            micros: 0,
        });
        assert!(store.flush(PATIENCE));
        let run = keys.find(0, std::iter::once(name)).remove(0);
        let arrival = |ticket| Arrival { ticket, blocks: 1, bytes: PageBuffer::zeroed(8).unwrap() };
        let parts = CacheParts { windows: vec![false], states: false };
        let mut restorer = Restorer::new(1, parts, Metrics::default());
        // A run that came short, one that came, one that is asked for, and one that is not.
        let progress = [
            Progress::Came(Arrival { blocks: 0, ..arrival(1) }, 0),
            Progress::Came(arrival(2), 0),
            Progress::Asked(3),
            Progress::Waiting,
        ];
        let runs = progress.into_iter().map(|progress| ExpectedRun {
            run: run.clone(),
            blocks: vec![(name, vec![1])],
            progress,
            others: OtherParts::Read,
        });
        restorer.in_flight = (1..4).map(|ticket| (ticket, 8)).collect();
        restorer.active.push(Restore {
            slot: Slot(0),
            places: VecDeque::new(),
            runs: runs.collect(),
            all: Vec::new(),
            _held: keys.hold(std::slice::from_ref(&run)),
            start: Instant::now(),
            last: Instant::now(),
            bytes: 0,
        });
        restorer.remove(0);
        assert_eq!(restorer.in_flight.keys().collect::<Vec<_>>(), [&3]);
        restorer.take(arrival(3));
        assert!(restorer.in_flight.is_empty());
    }
}
