//! Locks of a group.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic leaves no half-written state under these locks that is read later.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
