//! Which rank is gone, as every wait looks at it.

use crate::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The first rank of the world that is gone, if one is.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// One more than the rank; 0 while all are there.
    gone: AtomicU32,
    /// Milliseconds for which nothing had been heard from it.
    silence: AtomicU64,
    /// Whether the others are to answer at once.
    ping: AtomicBool,
}

impl Marks {
    /// Marks a rank as gone after such a silence, unless another one is.
    pub fn mark(&self, rank: usize, silence: Duration) {
        self.hear(rank as u32 + 1, silence);
    }

    /// Asks whether the others are there.
    pub fn ask(&self) {
        self.ping.store(true, Ordering::Relaxed);
    }

    /// Whether that has been asked since the last call.
    pub fn take_ping(&self) -> bool {
        self.ping.swap(false, Ordering::Relaxed)
    }

    /// What the leader says of the ranks.
    pub fn word(&self) -> u32 {
        self.gone.load(Ordering::Acquire)
    }

    /// Takes what the leader says of the ranks, one of which may be gone after such a silence.
    pub fn hear(&self, word: u32, silence: Duration) {
        if word != 0 && self.word() == 0 {
            self.silence.store(silence.as_millis() as u64, Ordering::Relaxed);
            self.gone.store(word, Ordering::Release);
        }
    }

    /// Checks that no rank is gone.
    ///
    /// # Errors
    /// The rank that is.
    pub fn check(&self) -> Result<(), Error> {
        match self.word() {
            0 => Ok(()),
            gone => Err(Error::Silent {
                rank: gone as usize - 1,
                millis: self.silence.load(Ordering::Relaxed),
            }),
        }
    }
}
