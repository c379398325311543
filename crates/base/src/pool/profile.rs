//! Where the time of the pool's caller goes: by operation, and how much of it threads share.
//!
//! Invariant: the times of all operations add up to the time since the profile began.

use super::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Times by operation, taken while it is handed to a pool.
#[derive(Debug)]
pub struct Profile(Mutex<Current>);

#[derive(Debug)]
struct Current {
    operations: Vec<OperationTime>,
    /// Index of the operation that runs, and when it began.
    at: usize,
    since: Instant,
}

/// Time of one operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationTime {
    /// Its name.
    pub name: String,
    /// How often it began.
    pub calls: u64,
    /// From its beginning to the beginning of the next operation.
    pub wall: Duration,
    /// The part of `wall` in which threads could share work.
    pub shared: Duration,
    /// Time inside pieces of shared work, all threads together.
    pub busy: Duration,
    /// Jobs of shared work.
    pub jobs: u64,
    /// Pieces of all jobs.
    pub pieces: u64,
}

impl OperationTime {
    /// The part of `wall` in which one thread worked alone.
    pub fn serial(&self) -> Duration {
        self.wall.saturating_sub(self.shared)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self(Mutex::new(Current { operations: Vec::new(), at: 0, since: Instant::now() }))
    }
}

impl Profile {
    /// Begins the operation called `name`, which ends the one before.
    pub fn begin(&self, name: &str) {
        let mut current = lock(&self.0);
        current.end();
        let found = current.operations.iter().position(|operation| operation.name == name);
        current.at = found.unwrap_or(current.operations.len());
        if found.is_none() {
            let name = name.to_owned();
            current.operations.push(OperationTime { name, ..OperationTime::default() });
        }
        let at = current.at;
        current.operations[at].calls += 1;
    }

    /// Takes the times so far, in the order in which operations first began. The operation that
    /// runs keeps its name.
    pub fn take(&self) -> Vec<OperationTime> {
        let mut current = lock(&self.0);
        current.end();
        let name = current.operations.get(current.at).map(|operation| operation.name.clone());
        let operations = std::mem::take(&mut current.operations);
        current.at = 0;
        let runs = name.map(|name| OperationTime { name, ..OperationTime::default() });
        current.operations.extend(runs);
        operations
    }

    /// Calls `job` with a clock for each of its `pieces`, and adds its times to the operation that
    /// runs.
    pub(super) fn share(&self, pieces: usize, job: impl FnOnce(&PieceClock)) {
        let (clock, begun) = (PieceClock::default(), Instant::now());
        job(&clock);
        let took = begun.elapsed();
        let mut current = lock(&self.0);
        let at = current.at;
        let Some(operation) = current.operations.get_mut(at) else { return };
        operation.shared += took;
        operation.busy += Duration::from_nanos(clock.0.load(Ordering::Relaxed));
        operation.jobs += 1;
        operation.pieces += pieces as u64;
    }
}

impl Current {
    /// Adds the time since the last call to the operation that runs.
    fn end(&mut self) {
        let now = Instant::now();
        if let Some(operation) = self.operations.get_mut(self.at) {
            operation.wall += now - self.since;
        }
        self.since = now;
    }
}

/// Adds up the time of pieces on all threads.
#[derive(Default)]
pub(super) struct PieceClock(AtomicU64);

impl PieceClock {
    /// Runs a piece.
    pub fn time(&self, piece: impl FnOnce()) {
        let begun = Instant::now();
        piece();
        self.0.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThreadPool;
    use std::sync::Arc;
    use std::thread::sleep;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn times_are_those_of_the_operation_that_runs() {
        for threads in [1, 3] {
            let profile = Arc::new(Profile::default());
            let mut pool = ThreadPool::new(threads).unwrap();
            pool.profile(Some(Arc::clone(&profile)));
            pool.for_each(2, |_| sleep(STEP));
            assert_eq!(profile.take(), [], "no operation yet");
            pool.begin("shared");
            pool.for_each(6, |_| sleep(STEP));
            pool.begin("serial");
            sleep(STEP);
            // One piece cannot be shared.
            pool.for_each(1, |_| sleep(STEP));
            pool.begin("shared");
            let times = profile.take();
            let [shared, serial] = &times[..] else { panic!("{times:?}") };
            assert_eq!((shared.calls, shared.jobs, shared.pieces), (2, 1, 6));
            assert_eq!((serial.calls, serial.jobs, serial.busy), (1, 0, Duration::ZERO));
            assert!(shared.busy >= 6 * STEP && shared.wall >= shared.shared);
            assert!(shared.shared * threads as u32 >= shared.busy, "{times:?}");
            assert!(serial.serial() >= 2 * STEP && serial.shared.is_zero());
            pool.for_each(2, |_| ());
            let again = profile.take();
            assert_eq!((again[0].name.as_str(), again[0].calls, again[0].pieces), ("shared", 0, 2));
        }
    }
}
