//! The budget of a folder, and what is evicted for it.

use crate::common::*;
use crate::failures::extents;
use std::path::Path;
use store::{Disk, Files, Keyspace, Store, StoreOptions};

/// Bytes of an extent of two blocks.
const EXTENT: u64 = 4096 + 2 * 8192;

fn limited(folder: &Path, max_bytes: u64) -> (Store, Keyspace) {
    let store = Store::open(StoreOptions { max_bytes, ..StoreOptions::new(folder) }).unwrap();
    let keys = ready_keyspace(&store, 0..3);
    (store, keys)
}

/// Bytes of the extents and of what is being written.
fn used(folder: &Path) -> u64 {
    // Meanwhile nothing is evicted, and no writing begins.
    let _lock = Files.lock(&folder.join("lock")).unwrap();
    // A file that is finished in the meantime is missed, or has no size.
    let size = |path: &std::path::PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    let tmp = std::fs::read_dir(folder.join("tmp")).into_iter().flatten();
    let tmp = tmp.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len());
    extents(folder).iter().map(size).sum::<u64>() + tmp.sum::<u64>()
}

#[test]
fn the_budget_holds_with_three_stores() {
    let folder = tempfile::tempdir().unwrap();
    let max = 20 * EXTENT;
    std::thread::scope(|scope| {
        for process in 0..3 {
            let folder = folder.path();
            scope.spawn(move || {
                let (store, keys) = limited(folder, max);
                for seed in 0..40 {
                    let chain = Chain::new(100 + process * 1000 + seed, 2);
                    chain.write(&keys, 0..2, 0..3);
                    assert!(store.flush(LONG));
                    let used = used(folder);
                    assert!(used <= max, "{used} of {max}");
                    // It was just written, and nothing that is worth less.
                    assert!(chain.read(&keys, 0..2) == 2 || seed > 0);
                }
                assert_eq!(store.stats().failures[..3], [0; 3]);
            });
        }
    });
    let used = used(folder.path());
    assert!(used <= max && used > max / 2, "{used} of {max}");
}

#[test]
fn prefixes_outlive_what_follows_them() {
    let folder = tempfile::tempdir().unwrap();
    let (store, keys) = limited(folder.path(), 6 * EXTENT);
    let trunk = Chain::new(7, 4);
    trunk.write(&keys, 0..2, 0..3);
    trunk.write(&keys, 2..4, 0..3);
    // Branches of the first extent, each used more than it.
    for seed in 0..20 {
        let branch = trunk.branch(2, 100 + seed);
        branch.write(&keys, 2..3, 0..3);
        assert!(store.flush(LONG));
        keys.count_use(&keys.find(0, branch.names(2..3)));
        assert!(store.flush(LONG));
        assert_eq!(trunk.read(&keys, 0..2), 2, "{seed}");
    }
    assert!(store.stats().evictions > 10);
}

#[test]
fn uses_decide_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (store, keys) = limited(folder.path(), 8 * EXTENT);
    let chains: Vec<_> = (0..6).map(|seed| Chain::new(seed + 1, 2)).collect();
    for chain in &chains {
        chain.write(&keys, 0..2, 0..3);
    }
    assert!(store.flush(LONG));
    for chain in &chains[..2] {
        keys.count_use(&keys.find(0, chain.names(0..2)));
    }
    for seed in 100..120 {
        Chain::new(seed, 2).write(&keys, 0..2, 0..3);
    }
    assert!(store.flush(LONG));
    let stays: Vec<_> = chains.iter().map(|chain| chain.read(&keys, 0..2)).collect();
    assert_eq!(stays, [2, 2, 0, 0, 0, 0]);
    // The worth is in the files: another process continues with it.
    drop((store, keys));
    let (store, keys) = limited(folder.path(), 8 * EXTENT);
    for seed in 200..220 {
        Chain::new(seed, 2).write(&keys, 0..2, 0..3);
    }
    assert!(store.flush(LONG));
    let stays: Vec<_> = chains.iter().map(|chain| chain.read(&keys, 0..2)).collect();
    assert_eq!(stays, [2, 2, 0, 0, 0, 0]);
}

#[test]
fn what_cannot_fit_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (store, keys) = limited(folder.path(), 3 * EXTENT);
    let small = Chain::new(7, 2);
    small.write(&keys, 0..2, 0..3);
    Chain::new(8, 20).write(&keys, 0..20, 0..3);
    assert!(store.flush(LONG));
    let stats = store.stats();
    assert_eq!((stats.dropped_writes, stats.evictions), (20, 0));
    assert_eq!(small.read(&keys, 0..2), 2);
    // Blocks of the chain that is written stay: what follows them would be of no use.
    let long = small.branch(2, 9);
    let (tight, tight_keys) = limited(folder.path(), EXTENT + 8192);
    long.write(&tight_keys, 2..3, 0..3);
    assert!(tight.flush(LONG));
    assert_eq!(tight.stats().dropped_writes, 1);
    assert_eq!(small.read(&tight_keys, 0..2), 2);
}
