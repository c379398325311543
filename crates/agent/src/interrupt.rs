//! How a call that waits learns that its request was cancelled or that requests have ended.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the reader of requests, which sets it, and the calls, which look at it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<InterruptState>>);

#[derive(Debug, Default)]
struct InterruptState {
    current: Option<u64>,
    cancelled: HashSet<u64>,
    is_ended: bool,
}

impl InterruptState {
    fn is_cancelled(&self) -> bool {
        self.current.is_some_and(|id| self.cancelled.contains(&id))
    }
}

impl Interrupt {
    /// Whether the current call must end, since it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.with(|state| state.is_cancelled())
    }

    /// Whether a call that waits must end, since it was cancelled or no more requests come.
    pub fn is_set(&self) -> bool {
        self.with(|state| state.is_ended || state.is_cancelled())
    }

    /// Cancels the request `id`, whether its call has started or not.
    pub fn cancel(&self, id: u64) {
        self.with(|state| state.cancelled.insert(id));
    }

    /// Says that no more requests come: waiting calls end.
    pub fn end(&self) {
        self.with(|state| state.is_ended = true);
    }

    /// Makes `id` the request that is carried out.
    pub(crate) fn start(&self, id: u64) {
        self.with(|state| state.current = Some(id));
    }

    /// Forgets the request that was carried out.
    pub(crate) fn finish(&self) {
        self.with(|state| {
            if let Some(id) = state.current.take() {
                state.cancelled.remove(&id);
            }
        });
    }

    fn with<R>(&self, change: impl FnOnce(&mut InterruptState) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
