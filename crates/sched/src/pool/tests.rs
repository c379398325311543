//! Registration, lookup and eviction of blocks.

use super::*;

/// Takes and registers a chain of blocks; the caller holds them.
fn chain(pool: &mut BlockPool, seed: u32, len: usize) -> Vec<u32> {
    let mut parent = Name::root(b"test");
    let mut blocks: Vec<u32> = Vec::new();
    for depth in 0..len {
        let tokens = [seed, depth as u32];
        let name = parent.child(&tokens);
        let block = pool.take().unwrap();
        let parent_block = blocks.last().copied();
        let full = FilledBlock { parent, parent_block, depth, tokens: &tokens };
        assert_eq!(pool.register(block, name, full), Some(block));
        blocks.push(block);
        parent = name;
    }
    blocks
}

/// Number of blocks of a chain that are still cached.
fn found(pool: &BlockPool, seed: u32, len: usize) -> usize {
    let mut parent = Name::root(b"test");
    (0..len as u32)
        .take_while(|&depth| {
            let before = parent;
            parent = before.child(&[seed, depth]);
            pool.find(parent, before, &[seed, depth]).is_some()
        })
        .count()
}

#[test]
fn released_blocks_are_cached_if_registered_and_free_if_not() {
    let mut pool = BlockPool::new(4);
    let held = chain(&mut pool, 1, 2);
    let plain = pool.take().unwrap();
    assert_eq!(pool.count(), BlockCounts { used: 3, cached: 0, free: 1 });
    held.iter().for_each(|&block| pool.release(block));
    pool.release(plain);
    assert_eq!(pool.count(), BlockCounts { used: 0, cached: 2, free: 2 });
    assert_eq!((pool.available(), found(&pool, 1, 2)), (4, 2));
    pool.hold(held[0]);
    assert_eq!(pool.count(), BlockCounts { used: 1, cached: 1, free: 2 });
}

#[test]
fn the_end_of_a_chain_is_evicted_before_its_root() {
    let mut pool = BlockPool::new(3);
    let held = chain(&mut pool, 1, 3);
    held.iter().for_each(|&block| pool.release(block));
    for left in [2, 1, 0] {
        pool.take().unwrap();
        assert_eq!(found(&pool, 1, 3), left);
    }
    assert_eq!(pool.take(), None);
    assert_eq!(pool.evictions(), 3);
}

#[test]
fn many_small_requests_leave_a_long_conversation_alone() {
    let mut pool = BlockPool::new(44);
    let conversation = chain(&mut pool, 0, 40);
    conversation.iter().for_each(|&block| pool.release(block));
    for seed in 1..1000 {
        let small = chain(&mut pool, seed, 2);
        small.iter().for_each(|&block| pool.release(block));
    }
    assert_eq!(found(&pool, 0, 40), 40);
    // It is evicted in the end.
    for seed in 1000..5000 {
        let small = chain(&mut pool, seed, 2);
        small.iter().for_each(|&block| pool.release(block));
    }
    assert!(found(&pool, 0, 40) < 40);
}

#[test]
fn of_equal_chains_the_older_goes_first() {
    let mut pool = BlockPool::new(6);
    for seed in [1, 2] {
        let held = chain(&mut pool, seed, 3);
        held.iter().for_each(|&block| pool.release(block));
    }
    pool.take().unwrap();
    assert_eq!((found(&pool, 1, 3), found(&pool, 2, 3)), (2, 3));
}

#[test]
fn a_block_is_found_by_its_tokens_and_its_parent_not_by_its_name_alone() {
    let mut pool = BlockPool::new(2);
    let (root, other) = (Name::root(b"a"), Name::root(b"b"));
    let name = root.child(&[1, 2]);
    let block = pool.take().unwrap();
    let full = FilledBlock { parent: root, parent_block: None, depth: 0, tokens: &[1, 2] };
    assert_eq!(pool.register(block, name, full), Some(block));
    assert_eq!(pool.find(name, root, &[1, 2]), Some(block));
    assert_eq!(pool.find(name, root, &[1, 3]), None);
    assert_eq!(pool.find(name, other, &[1, 2]), None);
    let twin = pool.take().unwrap();
    assert_eq!(pool.register(twin, name, full), Some(block));
    let forged = FilledBlock { tokens: &[9, 9], ..full };
    assert_eq!(pool.register(twin, name, forged), None);
}

#[test]
fn a_tail_is_kept_found_by_its_prefix_and_evicted_before_its_parent() {
    let mut pool = BlockPool::new(3);
    let held = chain(&mut pool, 1, 1);
    let parent = Name::root(b"test").child(&[1, 0]);
    let tail = pool.take().unwrap();
    let filled = FilledBlock { parent, parent_block: Some(held[0]), depth: 1, tokens: &[7] };
    pool.keep(tail, filled);
    [held[0], tail].iter().for_each(|&block| pool.release(block));
    pool.check(std::iter::empty());
    assert_eq!(pool.count(), BlockCounts { used: 0, cached: 2, free: 1 });
    assert_eq!(pool.nearest(parent, &[7, 8]), Some((tail, 1)));
    assert_eq!(pool.nearest(parent, &[8]), None);
    pool.take().unwrap();
    assert_eq!(pool.take(), Some(tail));
    assert_eq!((pool.nearest(parent, &[7]), found(&pool, 1, 1)), (None, 1));
}

#[test]
fn a_tail_that_was_used_outlives_one_that_was_not() {
    let mut pool = BlockPool::new(4);
    let root = Name::root(b"test");
    let tails = [5, 6].map(|token| {
        let block = pool.take().unwrap();
        pool.keep(
            block,
            FilledBlock { parent: root, parent_block: None, depth: 0, tokens: &[token] },
        );
        pool.release(block);
        block
    });
    let others = [pool.take().unwrap(), pool.take().unwrap()];
    pool.touch(tails[0]);
    assert_eq!(pool.take(), Some(tails[1]), "the newer, but not used since");
    pool.check([others[0], others[1], tails[1]].into_iter());
}
