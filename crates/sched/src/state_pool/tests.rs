//! Snapshots are found, evicted and resumed.

use super::*;

fn chain(tokens: &[u32]) -> Chain {
    Chain::new(Name::root(b"test"), 4, tokens.to_vec(), tokens.len())
}

fn keep(pool: &mut StatePool, tokens: &[u32], now: u64) -> u32 {
    let slot = pool.take().unwrap();
    pool.keep(slot, &chain(tokens), tokens.len(), tokens.len() / 4, now);
    slot
}

#[test]
fn the_last_snapshot_of_a_chain_is_found_in_the_middle_of_blocks_too() {
    let mut pool = StatePool::new(4);
    let slots = [&[1, 2][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6]].map(|t| keep(&mut pool, t, 0));
    let all = chain(&[1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pool.nearest(&all, 7), Some((slots[2], 6)));
    assert_eq!(pool.nearest(&all, 5), Some((slots[1], 4)));
    assert_eq!(pool.nearest(&all, 3), Some((slots[0], 2)));
    assert_eq!(pool.nearest(&all, 1), None);
    assert_eq!(pool.nearest(&chain(&[1, 2, 3, 4, 5, 7]), 6), Some((slots[1], 4)));
    assert_eq!(pool.nearest(&chain(&[2, 2, 3, 4, 5, 6]), 6), None);
    assert_eq!(pool.count(), StateCounts { live: 0, kept: 3, free: 1, evictions: 0 });
}

#[test]
fn one_of_equal_snapshots_is_freed() {
    let mut pool = StatePool::new(3);
    keep(&mut pool, &[1, 2], 0);
    keep(&mut pool, &[1, 2], 9);
    assert_eq!(pool.count(), StateCounts { live: 0, kept: 1, free: 2, evictions: 0 });
    pool.check(std::iter::empty());
}

#[test]
fn the_least_valuable_is_evicted_by_age_and_depth() {
    let mut pool = StatePool::new(3);
    let deep = keep(&mut pool, &[1; 8], 0);
    let old = keep(&mut pool, &[2, 2], 0);
    let new = keep(&mut pool, &[3, 3], 9);
    assert_eq!(pool.take(), Some(old));
    // Two blocks are worth 128 blocks taken.
    assert_eq!(pool.take(), Some(new));
    assert_eq!(pool.take(), Some(deep));
    assert_eq!(pool.take(), None);
    assert_eq!(pool.count(), StateCounts { live: 3, kept: 0, free: 0, evictions: 3 });
}

#[test]
fn of_equal_snapshots_the_one_that_was_not_used_for_longer_is_evicted() {
    let mut pool = StatePool::new(3);
    let slots = [[1, 1], [2, 2], [3, 3]].map(|tokens| keep(&mut pool, &tokens, 5));
    assert!(pool.touch(&chain(&[1, 1]), 2, 5));
    assert_eq!([pool.take(), pool.take(), pool.take()], [slots[1], slots[2], slots[0]].map(Some));
}

#[test]
fn a_snapshot_is_copied_unless_its_slot_is_the_only_one() {
    let mut pool = StatePool::new(2);
    let snapshot = keep(&mut pool, &[1, 2], 0);
    let (live, copy) = pool.resume(Some(snapshot), 1);
    assert_eq!(copy, Some(StateCopy { from: snapshot, to: live }));
    assert_eq!(pool.resume(Some(snapshot), 1), (snapshot, None));
    pool.check([live, snapshot].into_iter());
    pool.release(live);
    assert_eq!(pool.resume(None, 1), (live, None));
}
