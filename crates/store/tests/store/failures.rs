//! Files that are damaged, and disks that fail.

use crate::common::*;
use crate::scripted::{Op, Scripted};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Store, StoreKey, StoreOptions};

/// The extents of a folder.
pub fn extents(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false if entry.extension().is_some_and(|name| name == "gkv") => found.push(entry),
                false => {}
            }
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn cut_or_flipped_at_any_byte_is_a_miss() {
    keys().iter().for_each(|key| check_damage(key.as_ref()));
}

fn check_damage(key: Option<&StoreKey>) {
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::new(7, 2);
    let write = || {
        let store = open_with(folder.path(), key);
        chain.write(&ready_keyspace(&store, 0..3), 0..2, 0..3);
        assert!(store.flush(LONG));
    };
    write();
    let path = extents(folder.path()).remove(0);
    let good = fs::read(&path).unwrap();
    let places = (0..good.len()).step_by(37).chain(good.len() - 200..good.len());
    let mut misses = 0;
    for (at, cut) in places.flat_map(|at| [(at, false), (at, true)]) {
        let mut bad = good.clone();
        match cut {
            true => bad.truncate(at),
            false => bad[at] ^= 1 << (at % 8),
        }
        fs::write(&path, &bad).unwrap();
        let store = open_with(folder.path(), key);
        let keys = ready_keyspace(&store, 0..3);
        // Comparing the bytes is part of it. Padding of blocks may have any value.
        let found = chain.read(&keys, 0..2);
        let stats = store.stats();
        assert_eq!(stats.failures, [u64::from(found < 2), 0, 0, 0], "at {at}, cut: {cut}");
        assert_eq!(path.exists(), found == 2, "at {at}, cut: {cut}");
        assert!(!cut || found == 0);
        misses += usize::from(found < 2);
        // What was removed can be stored again.
        if found < 2 && at % 101 == 0 {
            chain.write(&keys, 0..2, 0..3);
            assert!(store.flush(LONG));
            assert_eq!(chain.read(&keys, 0..2), 2);
        }
    }
    assert!(misses > good.len() / 50, "{misses}");
}

#[test]
fn files_of_a_later_version_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::new(7, 2);
    {
        let store = open(folder.path());
        chain.write(&ready_keyspace(&store, 0..3), 0..2, 0..3);
        assert!(store.flush(LONG));
    }
    let path = extents(folder.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, &bytes).unwrap();
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    assert_eq!(chain.read(&keys, 0..2), 0);
    assert_eq!(store.stats().failures, [0; 4]);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_file_that_vanished_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    let chain = Chain::new(7, 4);
    chain.write(&keys, 0..2, 0..3);
    chain.write(&keys, 2..4, 0..3);
    assert!(store.flush(LONG));
    let paths = extents(folder.path());
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(chain.read(&keys, 0..4), 0);
    assert_eq!(store.stats().failures, [0, 0, 0, 2]);
    chain.write(&keys, 0..2, 0..3);
    assert!(store.flush(LONG));
    assert_eq!(chain.read(&keys, 0..4), 2);
}

fn scripted(folder: &Path) -> (Store, Scripted) {
    let disk = Scripted::default();
    let options = StoreOptions { disk: Arc::new(disk.clone()), ..StoreOptions::new(folder) };
    (Store::open(options).unwrap(), disk)
}

#[test]
fn disks_that_refuse_to_be_written_are_still_read() {
    for error in [libc::ENOSPC, libc::EDQUOT, libc::EROFS] {
        for op in [Op::Create, Op::Write, Op::Rename, Op::Lock, Op::SetModified] {
            let folder = tempfile::tempdir().unwrap();
            let (store, disk) = scripted(folder.path());
            let keys = ready_keyspace(&store, 0..3);
            let chain = Chain::new(7, 6);
            chain.write(&keys, 0..2, 0..3);
            assert!(store.flush(LONG));
            disk.fail(op, error);
            chain.write(&keys, 2..4, 0..3);
            // Not tried for a while.
            chain.write(&keys, 4..6, 0..3);
            assert!(store.flush(LONG));
            let stats = store.stats();
            assert_eq!((stats.dropped_writes, stats.failures), (4, [0, 0, 1, 0]), "{op:?}");
            assert_eq!(chain.read(&keys, 0..6), 2);
            disk.heal();
            chain.write(&keys, 2..4, 0..3);
            assert!(store.flush(LONG));
            assert_eq!((chain.read(&keys, 0..6), store.stats().dropped_writes), (2, 6));
            assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
        }
    }
}

#[test]
fn errors_of_the_disk_are_misses() {
    for op in [Op::Open, Op::Read] {
        let folder = tempfile::tempdir().unwrap();
        let (store, disk) = scripted(folder.path());
        let keys = ready_keyspace(&store, 0..3);
        let chain = Chain::new(7, 4);
        chain.write(&keys, 0..2, 0..3);
        chain.write(&keys, 2..4, 0..3);
        assert!(store.flush(LONG));
        disk.fail(op, libc::EIO);
        assert_eq!(chain.read(&keys, 0..4), 0);
        disk.heal();
        // A file that cannot be read is not tried again, and stays.
        assert_eq!(chain.read(&keys, 0..4), 0);
        assert_eq!(store.stats().failures, [0, 2, 0, 0]);
        assert_eq!(extents(folder.path()).len(), 2);
    }
}

#[test]
fn a_folder_that_cannot_be_listed_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::new(7, 2);
    let (store, disk) = scripted(folder.path());
    chain.write(&ready_keyspace(&store, 0..3), 0..2, 0..3);
    assert!(store.flush(LONG));
    drop(store);
    let (store, again) = scripted(folder.path());
    again.fail(Op::List, libc::EACCES);
    let keys = ready_keyspace(&store, 0..3);
    assert_eq!(chain.read(&keys, 0..2), 0);
    assert_eq!(store.stats().failures, [0, 1, 0, 0]);
    drop(disk);
}

#[test]
fn unfinished_files_of_processes_that_ended_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let tmp = folder.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let own = format!("{}-999", std::process::id());
    for name in ["999999999-1", "4194304000-2", "what", &own] {
        fs::write(tmp.join(name), "").unwrap();
    }
    let store = open(folder.path());
    assert!(store.flush(LONG));
    let left: Vec<_> = fs::read_dir(&tmp).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, [own.as_str()]);
}

#[test]
fn a_store_that_is_closed_answers_every_reading() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    let chain = Chain::new(7, 2);
    chain.write(&keys, 0..2, 0..3);
    assert!(store.flush(LONG));
    drop(store);
    assert_eq!(chain.read(&keys, 0..2), 0);
    chain.write(&keys, 0..2, 0..3);
}

#[test]
fn disks_that_fail_at_random_give_no_wrong_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut found, mut failed) = (0, 0);
    for seed in 0..20 {
        let (store, disk) = scripted(folder.path());
        let keys = ready_keyspace(&store, 0..3);
        disk.fail_at_random(seed);
        for number in 0..6 {
            let chain = Chain::new(number, 4);
            // Reading compares the bytes.
            found += chain.read(&keys, 0..4);
            chain.write(&keys, 0..4, 0..3);
            assert!(store.flush(LONG));
        }
        failed += store.stats().failures.iter().sum::<u64>();
    }
    assert!(found > 20 && failed > 20, "{found} blocks found, {failed} failures");
}

#[test]
fn a_file_that_others_wrote_anew_stays() {
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::new(7, 4);
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    chain.write(&keys, 0..4, 0..3);
    assert!(store.flush(LONG));
    // Another process evicts the extent, and writes its last blocks again, under the same name.
    let path = extents(folder.path()).remove(0);
    fs::remove_file(&path).unwrap();
    let other = open(folder.path());
    chain.write(&ready_keyspace(&other, 0..3), 2..4, 0..3);
    assert!(other.flush(LONG));
    assert_eq!(extents(folder.path()), std::slice::from_ref(&path));
    assert_eq!(chain.read(&keys, 0..4), 0);
    assert_eq!(store.stats().failures, [0, 0, 0, 1]);
    assert!(path.exists());
}

#[test]
fn what_is_held_is_not_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { max_bytes: 62_000, ..StoreOptions::new(folder.path()) };
    let store = Store::open(options).unwrap();
    let keys = ready_keyspace(&store, 0..3);
    let first = Chain::new(1, 2);
    first.write(&keys, 0..2, 0..3);
    assert!(store.flush(LONG));
    let held = keys.hold(&keys.find(0, first.names(0..2)));
    let write = |seeds: Range<u32>| {
        seeds.for_each(|seed| Chain::new(seed, 2).write(&keys, 0..2, 0..3));
        assert!(store.flush(LONG));
    };
    write(2..8);
    assert!(store.stats().evictions > 0);
    assert_eq!(first.read(&keys, 0..2), 2);
    drop(held);
    write(8..14);
    assert_eq!(first.read(&keys, 0..2), 0);
}
