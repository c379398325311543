//! Waiting for another rank: polling for a while, then sleeping on a condition variable.
//!
//! Invariant: a rank that changes a polled condition calls [`Notifier::notify`] afterwards, so that
//! no wake-up is lost.

use crate::lock::lock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Polls before sleeping: some microseconds, about what a wake-up takes.
const POLLS: usize = 2000;

#[derive(Debug, Default)]
pub(super) struct Notifier {
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Notifier {
    /// Waits until `poll` returns true or an error.
    ///
    /// # Errors
    /// The error that `poll` returns.
    pub fn wait<E>(&self, poll: impl Fn() -> Result<bool, E>) -> Result<(), E> {
        for _ in 0..POLLS {
            if poll()? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleep(poll)
    }

    fn sleep<E>(&self, poll: impl Fn() -> Result<bool, E>) -> Result<(), E> {
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Either this poll sees the change, or the rank that made it sees the sleeper.
        fence(Ordering::SeqCst);
        let seen = loop {
            match poll() {
                Ok(false) => guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        seen
    }

    /// The number of ranks that sleep.
    #[cfg(test)]
    pub fn sleepers(&self) -> usize {
        self.sleepers.load(Ordering::Relaxed)
    }

    /// Wakes the sleeping ranks, which poll again.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // A rank that is counted as a sleeper and holds the lock has yet to poll.
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }
}
