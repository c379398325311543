//! Threads that read from disk while others compute.
//!
//! A job owns the memory that it fills: nothing is shared while it is written. Jobs wait in three
//! queues by urgency, and those of a queue are taken in order.

use crate::mem::AlignedVec;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// When the result of a read is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Computation waits for it.
    Now,
    /// It is certain to be needed.
    Soon,
    /// It may be needed.
    Ahead,
}

const QUEUES: usize = 3;

/// Work of a reader thread.
pub trait ReadJob: Send + 'static {
    /// Reads, with memory of the thread that any job may use and enlarge. Errors are kept in the
    /// job.
    fn run(&mut self, scratch: &mut AlignedVec<u8>);
}

/// Jobs by state.
struct Queues<J> {
    waiting: [VecDeque<J>; QUEUES],
    finished: VecDeque<J>,
    /// Jobs that threads have taken.
    running: usize,
    closed: bool,
    /// A job has panicked.
    broken: bool,
}

struct ReadState<J> {
    queues: Mutex<Queues<J>>,
    /// A job waits, or the pool is closed.
    work: Condvar,
    /// A job is finished.
    finished: Condvar,
}

/// Reader threads and their jobs. Dropping it ends the threads, and drops jobs that wait.
pub struct ReadPool<J: ReadJob> {
    shared: Arc<ReadState<J>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J: ReadJob> std::fmt::Debug for ReadPool<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadPool({} threads)", self.threads.len())
    }
}

impl<J: ReadJob> ReadPool<J> {
    /// Starts `threads` threads, at least one, for at most `jobs` jobs at a time.
    ///
    /// # Errors
    /// If the system starts no threads.
    pub fn new(threads: usize, jobs: usize) -> io::Result<Self> {
        let queue = || VecDeque::with_capacity(jobs);
        let queues = Queues {
            waiting: std::array::from_fn(|_| queue()),
            finished: queue(),
            running: 0,
            closed: false,
            broken: false,
        };
        let shared = Arc::new(ReadState {
            queues: Mutex::new(queues),
            work: Condvar::new(),
            finished: Condvar::new(),
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("read-{number}"));
            pool.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(pool)
    }

    /// Adds a job.
    pub fn submit(&self, urgency: Urgency, job: J) {
        self.shared.lock().waiting[urgency as usize].push_back(job);
        self.shared.work.notify_one();
    }

    /// Moves a waiting job for which `is_it` to the most urgent queue.
    pub fn hasten(&self, is_it: impl Fn(&J) -> bool) {
        let mut queues = self.shared.lock();
        let [now, others @ ..] = &mut queues.waiting;
        for queue in others {
            if let Some(at) = queue.iter().position(&is_it) {
                now.extend(queue.remove(at));
                return;
            }
        }
    }

    /// Takes the jobs that wait to read ahead and for which `is_it`.
    pub fn cancel_ahead(&self, mut is_it: impl FnMut(&J) -> bool, mut cancelled: impl FnMut(J)) {
        let mut queues = self.shared.lock();
        let waiting = &mut queues.waiting[Urgency::Ahead as usize];
        for _ in 0..waiting.len() {
            let Some(job) = waiting.pop_front() else { return };
            match is_it(&job) {
                true => cancelled(job),
                false => waiting.push_back(job),
            }
        }
    }

    /// Takes a finished job; `None` if there is none.
    pub fn try_finished(&self) -> Option<J> {
        self.shared.lock().finished.pop_front()
    }

    /// Waits for a finished job and takes it; `None` if there are no jobs.
    ///
    /// # Panics
    /// If a job has panicked, which has lost its memory.
    pub fn wait_finished(&self) -> Option<J> {
        let mut queues = self.shared.lock();
        loop {
            if let Some(job) = queues.finished.pop_front() {
                return Some(job);
            }
            assert!(!queues.broken, "a reader thread has panicked");
            if queues.running == 0 && queues.waiting.iter().all(VecDeque::is_empty) {
                return None;
            }
            queues = self.shared.finished.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J: ReadJob> Drop for ReadPool<J> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a thread was reported by itself.
            let _ = thread.join();
        }
    }
}

impl<J: ReadJob> ReadState<J> {
    fn lock(&self) -> MutexGuard<'_, Queues<J>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs jobs until the pool is closed.
    fn serve(&self) {
        let mut scratch = AlignedVec::default();
        while let Some(mut job) = self.next() {
            let breaks = BreaksOnPanic(self);
            job.run(&mut scratch);
            drop(breaks);
            let mut queues = self.lock();
            queues.running -= 1;
            queues.finished.push_back(job);
            self.finished.notify_all();
        }
    }

    fn next(&self) -> Option<J> {
        let mut queues = self.lock();
        loop {
            if queues.closed {
                return None;
            }
            if let Some(job) = queues.waiting.iter_mut().find_map(VecDeque::pop_front) {
                queues.running += 1;
                return Some(job);
            }
            queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Tells waiting threads when it is dropped by a panic.
struct BreaksOnPanic<'a, J>(&'a ReadState<J>);

impl<J> Drop for BreaksOnPanic<'_, J> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
            self.0.finished.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Number of a job that panics.
    const BREAKS: u32 = 99;

    struct Numbered {
        number: u32,
        /// A message lets the job end.
        gate: Option<Receiver<()>>,
    }

    impl ReadJob for Numbered {
        fn run(&mut self, _scratch: &mut AlignedVec<u8>) {
            if let Some(gate) = &self.gate {
                let _ = gate.recv();
            }
            assert_ne!(self.number, BREAKS, "this job panics");
        }
    }

    fn job(number: u32) -> Numbered {
        Numbered { number, gate: None }
    }

    /// A pool of one thread, which is busy with job 0 until the sender is used.
    fn busy() -> (ReadPool<Numbered>, Sender<()>) {
        let pool = ReadPool::new(1, 8).unwrap();
        let (open, gate) = channel();
        pool.submit(Urgency::Now, Numbered { number: 0, gate: Some(gate) });
        while pool.shared.lock().running == 0 {
            std::thread::yield_now();
        }
        (pool, open)
    }

    fn order(pool: &ReadPool<Numbered>) -> Vec<u32> {
        std::iter::from_fn(|| pool.wait_finished()).map(|job| job.number).collect()
    }

    #[test]
    fn urgent_jobs_come_first_and_others_in_order() {
        let (pool, open) = busy();
        let all = [Urgency::Ahead, Urgency::Soon, Urgency::Ahead, Urgency::Now, Urgency::Soon];
        for (number, urgency) in (1..).zip(all) {
            pool.submit(urgency, job(number));
        }
        pool.hasten(|job| job.number == 3);
        pool.hasten(|job| job.number == 9);
        assert!(pool.try_finished().is_none());
        open.send(()).unwrap();
        assert_eq!(order(&pool), [0, 4, 3, 2, 5, 1]);
        assert!(pool.wait_finished().is_none(), "no jobs are left");
    }

    #[test]
    fn only_jobs_that_read_ahead_are_cancelled() {
        let (pool, open) = busy();
        let all = [Urgency::Ahead, Urgency::Soon, Urgency::Ahead, Urgency::Ahead];
        for (number, urgency) in (1..).zip(all) {
            pool.submit(urgency, job(number));
        }
        let mut cancelled = Vec::new();
        pool.cancel_ahead(|job| job.number != 4, |job| cancelled.push(job.number));
        open.send(()).unwrap();
        assert_eq!((cancelled, order(&pool)), (vec![1, 3], vec![0, 2, 4]));
    }

    #[test]
    fn a_job_that_panics_lets_the_waiting_thread_panic() {
        let (pool, open) = busy();
        pool.submit(Urgency::Now, job(BREAKS));
        open.send(()).unwrap();
        assert_eq!(pool.wait_finished().map(|job| job.number), Some(0));
        let waits = std::panic::AssertUnwindSafe(|| pool.wait_finished().is_some());
        assert!(std::panic::catch_unwind(waits).is_err());
    }

    #[test]
    fn a_pool_that_is_dropped_ends_with_jobs_that_wait() {
        let (pool, open) = busy();
        pool.submit(Urgency::Soon, job(1));
        drop(open);
        drop(pool);
    }
}
