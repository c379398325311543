//! The prefix cache on disk: blocks that are worth it are handed to a store, and found there when a
//! request needs them.
//!
//! Nothing here waits for the disk. Blocks are copied out between steps, a bounded number of bytes
//! at a time, and only while the store has buffers for them; blocks that come are copied in the
//! same way, before the sequence that needs them is admitted.

mod keep;
mod parts;
mod place;
mod restore;

use crate::Runner;
use crate::metrics::Metrics;
use keep::Keeper;
use parts::CacheParts;
pub use place::DiskPlace;
use restore::Restorer;
use sched::{Scheduler, Slot};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::{Keyspace, Store};

/// Which computed blocks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskWrite {
    /// What is read faster than it is computed.
    #[default]
    Auto,
    /// All.
    All,
    /// None: what is stored is found, and nothing is added.
    Off,
}

impl DiskWrite {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Auto, "auto"), (Self::All, "all"), (Self::Off, "off")];
}

impl std::str::FromStr for DiskWrite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, other)| *other == name);
        let wrong = || format!("expected auto, all or off, found {name:?}");
        found.map(|(write, _)| write).ok_or_else(wrong)
    }
}

impl std::fmt::Display for DiskWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::ALL[*self as usize].1)
    }
}

/// A store under the prefix cache of an engine.
#[derive(Clone)]
pub struct DiskCache {
    /// The store.
    pub store: Arc<Store>,
    /// Digest of all bytes of the weights, once it is known. Until then nothing is stored or found.
    pub digest: Arc<OnceLock<String>>,
    /// Which blocks are stored.
    pub write: DiskWrite,
    /// Tokens of the shortest prefix that is stored or found.
    pub min_tokens: usize,
}

impl DiskCache {
    /// A store, with the defaults of everything else.
    pub fn new(store: Arc<Store>, digest: Arc<OnceLock<String>>) -> Self {
        Self { store, digest, write: DiskWrite::Auto, min_tokens: MIN_TOKENS }
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { write, min_tokens, .. } = self;
        write!(f, "DiskCache({write}, at least {min_tokens} tokens)")
    }
}

/// Default of the shortest prefix that is stored or found.
pub const MIN_TOKENS: usize = 256;
/// Bytes copied from the cache between two steps, otherwise and while sequences decode.
const COPIED_OUT: usize = 8 << 20;
const COPIED_OUT_BUSY: usize = 2 << 20;
/// Bytes a second that a disk is assumed to read before it was measured.
const ASSUMED_RATE: u64 = 400 << 20;
/// Part of the time of computing that restoring may take.
const WORTH: f64 = 0.8;
/// Most time that a request waits for the store to find what it has.
const OPENING: Duration = Duration::from_secs(3);
/// Pause while a store has no buffer.
const PAUSE: Duration = Duration::from_millis(2);

/// What it costs to compute, and to read.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Seconds to compute a row of a prompt, if they were measured.
    row: Option<f64>,
    /// Bytes a second that the store reads.
    rate: u64,
}

impl Pace {
    /// Whether reading `bytes` takes clearly less time than computing `tokens`.
    fn is_worth(&self, bytes: usize, tokens: usize) -> bool {
        let read = bytes as f64 / self.rate as f64;
        self.row.is_none_or(|row| read < WORTH * row * tokens as f64)
    }

    /// Microseconds that `tokens` take to compute.
    fn micros(&self, tokens: usize) -> u64 {
        (self.row.unwrap_or_default() * 1e6 * tokens as f64) as u64
    }
}

/// The disk under the prefix cache of one engine.
pub(crate) struct Disk {
    cache: DiskCache,
    /// Open once the digest of the weights is known.
    keys: Option<Keyspace>,
    /// Until when requests wait for the store to find what it has.
    opening: Option<Instant>,
    keeper: Keeper,
    restorer: Restorer,
}

impl Disk {
    /// `None`, with a warning, for models whose cache cannot be stored.
    pub fn new(cache: DiskCache, runner: &Runner, metrics: &Metrics) -> Option<Self> {
        if let Err(why) = runner.stored() {
            tracing::warn!("the cache on disk is off: {why}");
            return None;
        }
        metrics.store(&cache.store);
        let parts = CacheParts::of(runner);
        let keeper = Keeper::new(cache.write, cache.min_tokens, parts.clone());
        let restorer = Restorer::new(cache.min_tokens, parts, metrics.clone());
        let mut disk = Self { cache, keys: None, opening: None, keeper, restorer };
        disk.open(runner);
        Some(disk)
    }

    /// Whether a request that was accepted waits, because the store has not found all that it has.
    pub fn holds(&self, slot: Slot) -> bool {
        self.opening.is_some() && self.restorer.is_accepted(slot)
    }

    /// Has a request that was accepted find its prefix.
    pub fn accepted(&mut self, slot: Slot) {
        self.restorer.accepted(slot);
    }

    /// Keeps what a sequence computed that is about to end. `stores` is whether its blocks are
    /// worth it.
    pub fn ending(&mut self, scheduler: &Scheduler, slot: Slot, stores: bool) {
        if stores {
            self.keeper.note(scheduler, slot, true);
        }
        self.keeper.forget(slot);
        self.restorer.forget(slot);
    }

    /// Keeps what a running sequence has computed so far, once it is much.
    pub fn computed(&mut self, scheduler: &Scheduler, slot: Slot) {
        self.keeper.note(scheduler, slot, false);
    }

    /// Keeps what a sequence has computed that was preempted.
    pub fn preempted(&mut self, scheduler: &Scheduler, slot: Slot) {
        self.keeper.note(scheduler, slot, true);
    }

    /// Copies blocks out of the cache and into it, and looks for what waiting requests need.
    /// `row` is the time of a row of a prompt, if it is known.
    pub fn work(&mut self, scheduler: &mut Scheduler, runner: &mut Runner, row: Option<f64>) {
        self.open(runner);
        let Some(keys) = &self.keys else { return };
        let is_open = |end: &Instant| keys.is_ready() || Instant::now() >= *end;
        if self.opening.is_some_and(|end| !is_open(&end)) {
            self.restorer.forget_running(scheduler);
            return;
        }
        self.opening = None;
        let pace = Pace { row, rate: keys.read_rate().unwrap_or(ASSUMED_RATE) };
        let busy = scheduler.decoding().next().is_some();
        self.restorer.work(keys, scheduler, runner, pace, busy);
        let most = if busy { COPIED_OUT_BUSY } else { COPIED_OUT };
        self.keeper.work(keys, scheduler, runner, pace, most);
    }

    /// Waits for the next run of blocks that were asked for.
    pub fn wait(&mut self, most: Duration) {
        if let Some(keys) = &self.keys {
            keys.wait(most).into_iter().for_each(|arrival| self.restorer.take(arrival));
        }
    }

    /// Whether waiting sequences expect blocks.
    pub fn is_restoring(&self) -> bool {
        self.restorer.is_waiting()
    }

    /// Copies out what is to be kept while `may_go_on` and nothing is computed.
    pub fn keep_idle(
        &mut self,
        scheduler: &mut Scheduler,
        runner: &mut Runner,
        row: Option<f64>,
        may_go_on: impl Fn() -> bool,
    ) {
        while self.keeper.has_work() && self.keys.is_some() && may_go_on() {
            let before = self.keeper.waiting();
            self.work(scheduler, runner, row);
            if self.keeper.waiting() == before {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Keeps what is left at the end, for at most this long, which may be until the digest of the
    /// weights is known.
    pub fn finish(&mut self, scheduler: &mut Scheduler, runner: &mut Runner, most: Duration) {
        let end = Instant::now() + most;
        while self.keeper.has_work() && self.keys.is_none() && Instant::now() < end {
            std::thread::sleep(PAUSE);
            self.open(runner);
        }
        self.keep_idle(scheduler, runner, None, || Instant::now() < end);
        if self.keys.is_some() {
            self.cache.store.flush(end.saturating_duration_since(Instant::now()));
        }
    }

    fn open(&mut self, runner: &Runner) {
        let Some(digest) = self.cache.digest.get().filter(|_| self.keys.is_none()) else { return };
        let Ok(place) = DiskPlace::of(runner) else { return };
        self.opening = Some(Instant::now() + OPENING);
        self.keys = Some(place.open(&self.cache.store, digest));
    }
}
