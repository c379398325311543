//! Locks that are taken together.

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks several mutexes, in the order of their addresses: threads that lock the same ones together
/// do not wait for each other forever. Returns the guards in the order of `mutexes`, or `None` if
/// one of these is there twice.
pub fn lock_all<'a, T>(mutexes: &[&'a Mutex<T>]) -> Option<Vec<MutexGuard<'a, T>>> {
    let mut order: Vec<(usize, &'a Mutex<T>)> = mutexes.iter().copied().enumerate().collect();
    order.sort_unstable_by_key(|(_, mutex)| ptr::from_ref(*mutex).addr());
    if order.windows(2).any(|pair| ptr::eq(pair[0].1, pair[1].1)) {
        return None;
    }
    let lock = |mutex: &'a Mutex<T>| mutex.lock().unwrap_or_else(PoisonError::into_inner);
    let mut guards: Vec<_> = order.into_iter().map(|(at, mutex)| (at, lock(mutex))).collect();
    guards.sort_unstable_by_key(|(at, _)| *at);
    Some(guards.into_iter().map(|(_, guard)| guard).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn guards_have_the_order_of_their_mutexes_and_none_is_locked_twice() {
        let mutexes = [Mutex::new(0), Mutex::new(1), Mutex::new(2)];
        let [a, b, c] = &mutexes;
        let guards = lock_all(&[c, a, b]).unwrap();
        assert_eq!(guards.iter().map(|guard| **guard).collect::<Vec<_>>(), [2, 0, 1]);
        drop(guards);
        assert!(lock_all(&[a, b, a]).is_none());
        assert_eq!(lock_all::<u32>(&[]).map(|guards| guards.len()), Some(0));
    }

    #[test]
    fn threads_that_name_the_same_mutexes_in_any_order_all_get_them() {
        let (a, b) = (Mutex::new(0), Mutex::new(0));
        thread::scope(|scope| {
            for order in [[&a, &b], [&b, &a]] {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        lock_all(&order).unwrap().iter_mut().for_each(|guard| **guard += 1);
                    }
                });
            }
        });
        assert_eq!((a.into_inner().unwrap(), b.into_inner().unwrap()), (20_000, 20_000));
    }
}
