//! Waiting for what another rank does: looking for a while, then asleep.
//!
//! Invariant: who changes what others look for rings afterwards; then nobody sleeps through it.

use super::lock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Looks before sleeping: some microseconds, as a wake-up takes.
const LOOKS: usize = 2000;

#[derive(Debug, Default)]
pub(super) struct Bell {
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Waits until `look` gives true or an error.
    pub fn wait<E>(&self, look: impl Fn() -> Result<bool, E>) -> Result<(), E> {
        for _ in 0..LOOKS {
            if look()? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleep(look)
    }

    fn sleep<E>(&self, look: impl Fn() -> Result<bool, E>) -> Result<(), E> {
        let mut bed = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Either this look sees the change, or who made it sees the sleeper.
        fence(Ordering::SeqCst);
        let seen = loop {
            match look() {
                Ok(false) => bed = self.rung.wait(bed).unwrap_or_else(PoisonError::into_inner),
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        seen
    }

    /// Wakes those that sleep, for another look.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // Who counts as a sleeper and holds the lock has yet to look.
            drop(lock(&self.bed));
            self.rung.notify_all();
        }
    }
}
