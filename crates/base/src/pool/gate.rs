//! The gate to a job: workers that arrive while it is open enter, and the caller, once it has
//! closed the gate, waits only for the workers inside.
//!
//! Invariant: no worker enters a closed gate, and none enters twice while it is open.

use std::sync::atomic::{AtomicU64, Ordering};

const INSIDE: u64 = 1;
const ENTERED: u64 = 1 << 16;
const CLOSED: u64 = 1 << 32;
const EVERYBODY: u64 = 1 << 33;
const JOB: u64 = 1 << 34;
/// Bits of a number of workers.
const COUNT: u64 = ENTERED - 1;

/// Most workers that the counts hold.
pub(super) const MAX_WORKERS: usize = COUNT as usize;

/// On a cache line of its own, because all poll it.
///
/// One word, so that it is read and changed at once: workers inside, workers that entered, whether
/// it is closed, whether every worker must enter, and the number of the job.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Gate(AtomicU64);

/// A gate as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View(u64);

impl View {
    /// Workers inside.
    pub fn inside(self) -> usize {
        (self.0 & COUNT) as usize
    }

    /// Workers that have entered since it was opened.
    pub fn entered(self) -> usize {
        ((self.0 / ENTERED) & COUNT) as usize
    }

    /// Whether every worker must take part in this job.
    pub fn calls_everybody(self) -> bool {
        self.0 & EVERYBODY != 0
    }

    /// The number of the job.
    pub fn job(self) -> u64 {
        self.0 / JOB
    }

    /// Whether a worker that last saw job `seen` may enter.
    pub fn admits(self, seen: u64) -> bool {
        self.0 & CLOSED == 0 && self.job() != seen
    }
}

impl Gate {
    /// A closed gate, before job 1.
    pub fn new() -> Self {
        Self(AtomicU64::new(CLOSED))
    }

    /// The gate now.
    pub fn view(&self, order: Ordering) -> View {
        View(self.0.load(order))
    }

    /// Opens the closed gate, with no worker inside, to the next job. What the caller wrote before
    /// is visible to every worker that enters.
    pub fn open(&self, everybody: bool) {
        // No other thread changes a closed gate with no worker inside.
        let job = self.view(Ordering::Relaxed).job() + 1;
        let everybody = if everybody { EVERYBODY } else { 0 };
        // After 2^30 jobs the numbers begin anew; no worker sleeps through all of them.
        self.0.store(job.wrapping_mul(JOB) | everybody, Ordering::SeqCst);
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Enters, unless the gate no longer admits a worker that last saw job `seen`.
    pub fn enter(&self, seen: u64) -> Option<View> {
        let enter = |gate| View(gate).admits(seen).then_some(gate + INSIDE + ENTERED);
        let entered = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        entered.ok().map(View)
    }

    /// Leaves, and returns the gate after that. What was written inside is visible to a thread that
    /// sees this.
    pub fn leave(&self) -> View {
        View(self.0.fetch_sub(INSIDE, Ordering::SeqCst) - INSIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(gate: &Gate) -> View {
        gate.view(Ordering::SeqCst)
    }

    #[test]
    fn each_worker_enters_each_job_once_and_none_comes_late() {
        let gate = Gate::new();
        assert_eq!(gate.enter(0), None);
        gate.open(false);
        let first = gate.enter(0).unwrap();
        assert_eq!((first.job(), first.calls_everybody()), (1, false));
        assert_eq!(gate.enter(first.job()), None);
        gate.enter(0).unwrap();
        assert_eq!((now(&gate).inside(), now(&gate).entered()), (2, 2));
        gate.leave();
        gate.close();
        assert_eq!(gate.enter(0), None);
        assert_eq!((now(&gate).inside(), now(&gate).entered()), (1, 2));
        assert_eq!(gate.leave().inside(), 0);
        gate.open(true);
        assert_eq!(now(&gate).entered(), 0);
        assert!(gate.enter(first.job()).unwrap().calls_everybody());
    }

    #[test]
    fn numbers_of_jobs_begin_anew() {
        let last = u64::MAX / JOB;
        let gate = Gate(AtomicU64::new((last * JOB) | CLOSED));
        gate.open(false);
        assert_eq!(gate.enter(last).map(View::job), Some(0));
        assert_eq!(gate.enter(0), None);
    }
}
