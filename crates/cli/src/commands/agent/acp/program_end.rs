//! The end of the program, which all threads look at.

use crate::interrupt::Watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program ends: a signal has come, the input has ended, or the output is closed.
#[derive(Clone, Debug)]
pub(super) struct ProgramEnd(Arc<EndState>);

#[derive(Debug)]
struct EndState {
    watch: Watch,
    has_come: AtomicBool,
}

impl ProgramEnd {
    /// Begins to watch for signals.
    pub fn new() -> Self {
        Self(Arc::new(EndState { watch: Watch::new(), has_come: AtomicBool::new(false) }))
    }

    /// Ends the program.
    pub fn come(&self) {
        self.0.has_come.store(true, Ordering::Release);
    }

    /// Whether all work is to stop.
    pub fn has_come(&self) -> bool {
        self.is_signal() || self.0.has_come.load(Ordering::Acquire)
    }

    /// Whether a signal has come.
    pub fn is_signal(&self) -> bool {
        self.0.watch.check().is_err()
    }
}
