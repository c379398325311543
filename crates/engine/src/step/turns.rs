//! Turns of engines that share the processors of a machine: one computes a step at a time.
//!
//! Each engine has threads for all processors. Two that compute at once would make each other's
//! threads wait, so they take turns, and while several have work, each gets the same time
//! (start-time fair queueing: Goyal, Vin, Cheng 1997).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the processors are left free for an engine that has had less time and is between two
/// steps.
const PATIENCE: Duration = Duration::from_millis(2);

/// The turns of the engines of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ComputeTurns(Arc<TurnState>);

#[derive(Debug, Default)]
struct TurnState {
    table: Mutex<TurnTable>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnTable {
    /// By the numbers of the engines; `None` for engines that have ended.
    engines: Vec<Option<EngineTime>>,
    computes: bool,
    /// The time of the engine that had the last turn, when it began: an engine that begins to work
    /// counts as having had as much.
    clock: Duration,
    /// When the last turn ended.
    free_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EngineTime {
    /// Time of all its turns, and what it counts as having had without work.
    used: Duration,
    works: bool,
}

/// An engine that takes turns with others.
#[derive(Debug)]
pub(crate) struct TurnTaker {
    turns: ComputeTurns,
    engine: usize,
}

/// The turn of an engine, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: ComputeTurns,
    engine: usize,
    begun: Instant,
}

impl ComputeTurns {
    /// Adds an engine, which has no work yet.
    pub(crate) fn join(&self) -> TurnTaker {
        let mut table = self.table();
        let free = table.engines.iter().position(Option::is_none);
        let engine = free.unwrap_or(table.engines.len());
        match free {
            Some(engine) => table.engines[engine] = Some(EngineTime::default()),
            None => table.engines.push(Some(EngineTime::default())),
        }
        drop(table);
        TurnTaker { turns: self.clone(), engine }
    }

    fn table(&self) -> MutexGuard<'_, TurnTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut TurnTable)) {
        change(&mut self.table());
        self.0.changed.notify_all();
    }
}

impl TurnTable {
    /// The engines that have work, but `engine`, with the time each has had.
    fn others(&self, engine: usize) -> impl Iterator<Item = (Duration, usize)> {
        let engines = self.engines.iter().enumerate().filter(move |&(other, _)| other != engine);
        let times = engines.filter_map(|(other, time)| Some((other, time.as_ref()?)));
        times.filter(|(_, time)| time.works).map(|(other, time)| (time.used, other))
    }

    fn time(&mut self, engine: usize) -> &mut EngineTime {
        self.engines[engine].get_or_insert_default()
    }

    /// Notes that an engine has work.
    fn begin(&mut self, engine: usize) {
        let clock = self.clock;
        let time = self.time(engine);
        if !time.works {
            *time = EngineTime { used: time.used.max(clock), works: true };
        }
    }

    /// How long `engine` has to wait for its turn: zero if it may begin, `None` until the turn of
    /// another ends.
    fn wait(&mut self, engine: usize, now: Instant) -> Option<Duration> {
        if self.computes {
            return None;
        }
        let own = (self.time(engine).used, engine);
        let is_first = self.others(engine).all(|other| own < other);
        let free = self.free_since.map_or(PATIENCE, |since| now.duration_since(since));
        Some(if is_first { Duration::ZERO } else { PATIENCE.saturating_sub(free) })
    }
}

impl TurnTaker {
    /// Waits for the turn of this engine.
    pub fn take(&self) -> Turn {
        let mut table = self.turns.table();
        table.begin(self.engine);
        loop {
            let now = Instant::now();
            let changed = &self.turns.0.changed;
            table = match table.wait(self.engine, now) {
                Some(Duration::ZERO) => {
                    (table.computes, table.clock) = (true, table.time(self.engine).used);
                    drop(table);
                    return Turn { turns: self.turns.clone(), engine: self.engine, begun: now };
                }
                Some(time) => {
                    changed.wait_timeout(table, time).unwrap_or_else(PoisonError::into_inner).0
                }
                None => changed.wait(table).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Notes that this engine has no work.
    pub fn rest(&self) {
        self.turns.change(|table| table.time(self.engine).works = false);
    }

    /// Whether other engines have work.
    pub fn others_work(&self) -> bool {
        self.turns.table().others(self.engine).next().is_some()
    }
}

impl Drop for TurnTaker {
    fn drop(&mut self) {
        self.turns.change(|table| table.engines[self.engine] = None);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = Instant::now();
        self.turns.change(|table| {
            table.time(self.engine).used += now.duration_since(self.begun);
            (table.computes, table.free_since) = (false, Some(now));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_engine_with_less_time_goes_first_and_is_waited_for_briefly() {
        let turns = ComputeTurns::default();
        let (a, b) = (turns.join(), turns.join());
        let now = Instant::now();
        let mut table = turns.table();
        table.begin(a.engine);
        assert_eq!(table.wait(a.engine, now), Some(Duration::ZERO));
        table.time(a.engine).used = MS(50);
        table.clock = MS(50);
        table.begin(b.engine);
        assert_eq!(table.time(b.engine).used, MS(50), "time before its work is no credit");
        table.time(a.engine).used = MS(60);
        (table.computes, table.free_since) = (false, Some(now));
        assert_eq!(table.wait(b.engine, now), Some(Duration::ZERO));
        assert_eq!(table.wait(a.engine, now), Some(PATIENCE));
        assert_eq!(table.wait(a.engine, now + PATIENCE), Some(Duration::ZERO));
        table.computes = true;
        assert_eq!(table.wait(b.engine, now), None);
    }

    #[test]
    fn an_engine_that_rests_or_ends_is_not_waited_for() {
        let turns = ComputeTurns::default();
        let (a, b) = (turns.join(), turns.join());
        turns.table().begin(b.engine);
        assert!(a.others_work());
        b.rest();
        assert!(!a.others_work());
        turns.table().begin(b.engine);
        drop(b);
        assert!(!a.others_work());
        assert_eq!(turns.join().engine, 1, "its number is free again");
    }

    #[test]
    fn time_that_an_engine_has_had_alone_is_no_debt() {
        let turns = ComputeTurns::default();
        let (a, b) = (turns.join(), turns.join());
        let mut table = turns.table();
        table.begin(a.engine);
        // Its last turn took 10 ms.
        table.time(a.engine).used = MS(20_000);
        table.clock = MS(19_990);
        table.time(a.engine).works = false;
        [b.engine, a.engine].into_iter().for_each(|engine| table.begin(engine));
        assert_eq!(table.time(b.engine).used, MS(19_990));
        assert_eq!(table.time(a.engine).used, MS(20_000));
    }

    #[test]
    fn one_engine_computes_at_a_time() {
        let turns = ComputeTurns::default();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let taker = turns.join();
                    for _ in 0..50 {
                        let _turn = taker.take();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
