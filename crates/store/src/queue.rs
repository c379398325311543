//! Jobs for threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue of jobs, which ends when it is closed.
pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

struct QueueState<T> {
    jobs: VecDeque<T>,
    is_closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = QueueState { jobs: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a job.
    ///
    /// # Errors
    /// The job, if the queue is closed.
    pub fn push(&self, job: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a job; `None` when the queue is closed.
    pub fn pop(&self) -> Option<T> {
        let waiting = |state: &mut QueueState<T>| state.jobs.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(self.lock(), waiting);
        state.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for a job until `end`.
    pub fn pop_before(&self, end: Instant) -> Option<T> {
        let left = end.saturating_duration_since(Instant::now());
        let waiting = |state: &mut QueueState<T>| state.jobs.is_empty() && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), left, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// Pauses, until the queue is closed.
    pub fn sleep(&self, time: Duration) {
        let is_open = |state: &mut QueueState<T>| !state.is_closed;
        drop(self.changed.wait_timeout_while(self.lock(), time, is_open));
    }

    /// Ends the queue. Jobs in it are dropped.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.jobs.clear();
        drop(state);
        self.changed.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

impl<T> QueueState<T> {
    fn take(&mut self) -> Option<T> {
        self.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_their_order_until_the_end() {
        let queue = Queue::default();
        (0..3).for_each(|job| queue.push(job).unwrap());
        assert_eq!([queue.pop(), queue.pop_before(Instant::now())], [Some(0), Some(1)]);
        queue.close();
        assert_eq!([queue.pop(), queue.pop_before(Instant::now())], [None, None]);
        assert_eq!(queue.push(4), Err(4));
        queue.sleep(Duration::from_secs(3600));
    }

    #[test]
    fn who_waits_is_woken() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (queue.pop(), queue.pop()));
            queue.push(7).unwrap();
            while !queue.lock().jobs.is_empty() {
                std::thread::yield_now();
            }
            queue.close();
            assert_eq!(waiting.join().unwrap(), (Some(7), None));
        });
        assert_eq!(queue.pop_before(Instant::now() + Duration::from_millis(1)), None);
    }
}
