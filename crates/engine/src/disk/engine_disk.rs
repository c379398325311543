//! The disk under the prefix cache of one engine.

use super::copies::PAUSE;
use super::followed_disk::{IS_NOT_OPEN_YET, IS_OPEN};
use super::keep::Keeper;
use super::memory::CacheMemory;
use super::options::DiskCache;
use super::pace::Pace;
use super::restore::Restorer;
use crate::observe::metrics::Metrics;
use crate::ranks::disk_message::{DiskTask, OPEN_TICKET};
use sched::{Scheduler, Slot};
use std::time::{Duration, Instant};
use store::Keyspace;

/// Bytes copied from the cache between two steps, otherwise and while sequences decode. A step of a
/// prompt computes at most about as many, which takes far longer than to copy them.
const COPIED_OUT: usize = 64 << 20;
const COPIED_OUT_BUSY: usize = 2 << 20;
/// Bytes a second that a disk is assumed to read before it was measured.
const ASSUMED_RATE: u64 = 400 << 20;
/// Most time that a request waits for the store to find what it has.
const OPENING: Duration = Duration::from_secs(3);
/// Time between the first two questions whether the stores of other ranks are open, which doubles
/// up to the second: a rank may read its weights for minutes.
const TRY_AGAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(5)];

/// The disk under the prefix cache of one engine.
pub(crate) struct Disk {
    cache: DiskCache,
    /// Open once the digest of the weights is known.
    keys: Option<Keyspace>,
    /// Until when requests wait for the store to find what it has.
    opening: Option<Instant>,
    /// When other ranks are asked again whether their stores are open; `None` where they have none.
    next_try: Option<Instant>,
    /// Time until they are asked once more after that.
    try_again: Duration,
    keeper: Keeper,
    restorer: Restorer,
}

impl Disk {
    /// `None`, with a warning, for models whose cache cannot be stored.
    pub fn new(cache: DiskCache, memory: &mut dyn CacheMemory, metrics: &Metrics) -> Option<Self> {
        let warn = |why: &&str| tracing::warn!("the cache on disk is off: {why}");
        let parts = memory.parts().inspect_err(warn).ok()?;
        metrics.store(&cache.store);
        let keeper = Keeper::new(cache.write, cache.min_tokens, parts.clone());
        let restorer = Restorer::new(cache.min_tokens, parts, metrics.clone());
        let now = Instant::now();
        // Other ranks answer once they have begun.
        let waits = memory.has_other_ranks() && cache.digest.get().is_some();
        let mut disk = Self {
            cache,
            keys: None,
            opening: waits.then(|| now + OPENING),
            next_try: Some(now),
            try_again: TRY_AGAIN[0],
            keeper,
            restorer,
        };
        if !memory.has_other_ranks() {
            disk.open(memory);
        }
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
            self.keeper.note(self.keys.as_ref(), scheduler, slot, true);
        }
        self.keeper.forget(slot);
        self.restorer.forget(slot);
    }

    /// Keeps what a running sequence has computed so far, once it is much.
    pub fn computed(&mut self, scheduler: &Scheduler, slot: Slot) {
        self.keeper.note(self.keys.as_ref(), scheduler, slot, false);
    }

    /// Keeps what a sequence has computed that was preempted.
    pub fn preempted(&mut self, scheduler: &Scheduler, slot: Slot) {
        self.keeper.note(self.keys.as_ref(), scheduler, slot, true);
    }

    /// Copies blocks out of the cache and into it, and looks for what waiting requests need.
    /// `row` is the time of a row of a prompt, if it is known.
    pub fn work(
        &mut self,
        scheduler: &mut Scheduler,
        memory: &mut dyn CacheMemory,
        row: Option<f64>,
    ) {
        self.work_while(false, scheduler, memory, row);
    }

    /// As [`work`](Self::work); `is_idle` is whether nothing is computed.
    fn work_while(
        &mut self,
        is_idle: bool,
        scheduler: &mut Scheduler,
        memory: &mut dyn CacheMemory,
        row: Option<f64>,
    ) {
        self.open(memory);
        let is_ready = self.keys.as_ref().is_some_and(Keyspace::is_ready);
        if self.opening.is_some_and(|end| !is_ready && Instant::now() < end) {
            self.restorer.forget_running(scheduler);
            return;
        }
        self.opening = None;
        let Some(keys) = &self.keys else { return };
        let pace = Pace { row, rate: keys.read_rate().unwrap_or(ASSUMED_RATE) };
        let busy = scheduler.decoding().next().is_some();
        self.restorer.work(keys, scheduler, memory, pace, busy);
        // Other ranks drop what they have no buffers for.
        let little = busy || (memory.has_other_ranks() && !is_idle);
        let most = if little { COPIED_OUT_BUSY } else { COPIED_OUT };
        self.keeper.work(keys, scheduler, memory, pace, (most, is_idle));
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
        memory: &mut dyn CacheMemory,
        row: Option<f64>,
        may_go_on: impl Fn() -> bool,
    ) {
        while self.keeper.has_work() && self.keys.is_some() && may_go_on() {
            let before = self.keeper.waiting();
            self.work_while(true, scheduler, memory, row);
            if self.keeper.waiting() == before {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Keeps what is left at the end, for at most this long, which may be until the digest of the
    /// weights is known.
    pub fn finish(
        &mut self,
        scheduler: &mut Scheduler,
        memory: &mut dyn CacheMemory,
        most: Duration,
    ) {
        let end = Instant::now() + most;
        let may_open = |disk: &Self| disk.keys.is_none() && disk.next_try.is_some();
        while self.keeper.has_work() && may_open(self) && Instant::now() < end {
            std::thread::sleep(PAUSE);
            self.open(memory);
        }
        self.keep_idle(scheduler, memory, None, || Instant::now() < end);
        if self.keys.is_some() {
            self.cache.store.flush(end.saturating_duration_since(Instant::now()));
        }
    }

    fn open(&mut self, memory: &mut dyn CacheMemory) {
        let Some(digest) = self.cache.digest.get().filter(|_| self.keys.is_none()) else { return };
        if self.next_try.is_none_or(|next| Instant::now() < next) {
            return;
        }
        memory.tell_others(&DiskTask::Open { digest: digest.clone() });
        match memory.answer_of_others(OPEN_TICKET) {
            None | Some(IS_OPEN) => {}
            Some(IS_NOT_OPEN_YET) => {
                self.next_try = Some(Instant::now() + self.try_again);
                self.try_again = (2 * self.try_again).min(TRY_AGAIN[1]);
                return;
            }
            Some(_) => {
                tracing::warn!("the cache on disk is off: a rank has none, or other weights");
                (self.next_try, self.opening) = (None, None);
                return;
            }
        }
        let Ok(keys) = memory.open(&self.cache.store, digest) else { return };
        self.opening = Some(Instant::now() + OPENING);
        self.keys = Some(keys);
    }
}
