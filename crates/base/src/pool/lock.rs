//! Locks of the pool.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic with the lock held leaves nothing half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
