//! Stores with a key.

use crate::common::*;
use crate::failures::extents;
use std::fs;
use std::path::Path;
use store::{Files, Outline, Problem, StoreKey, list_folder, read_extent, verify_extent};

/// Stores a chain of five blocks under a key.
fn fill(folder: &Path, key: Option<&StoreKey>) -> Chain {
    let chain = Chain::new(0x0eed_5eed, 5);
    let store = open_with(folder, key);
    let keys = ready_keyspace(&store, 0..3);
    chain.write(&keys, 0..2, 0..3);
    chain.write(&keys, 2..5, 0..3);
    assert!(store.flush(LONG));
    assert_eq!(chain.read(&keys, 0..5), 5);
    chain
}

#[test]
fn what_is_sealed_is_found_with_the_same_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let chain = fill(folder.path(), Some(&key(1)));
    for (other, blocks) in [(Some(key(1)), 5), (Some(key(2)), 0), (None, 0), (Some(key(1)), 5)] {
        let store = open_with(folder.path(), other.as_ref());
        let keys = ready_keyspace(&store, 0..3);
        assert_eq!(chain.read(&keys, 0..5), blocks, "{other:?}");
        assert_eq!(store.stats().failures, [0; 4]);
        assert_eq!(extents(folder.path()).len(), 2);
    }
}

#[test]
fn stages_read_their_layers_of_sealed_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_with(folder.path(), Some(&key(1)));
    let (whole, parted) = (Chain::new(7, 5), Chain::new(8, 5));
    let stages = [0..1, 1..3];
    whole.write(&ready_keyspace(&store, 0..3), 0..5, 0..3);
    for layers in &stages {
        parted.write(&ready_keyspace(&store, layers.clone()), 0..5, layers.clone());
    }
    assert!(store.flush(LONG));
    for layers in stages.into_iter().chain(std::iter::once(0..3)) {
        let keys = ready_keyspace(&store, layers);
        assert_eq!([whole.read(&keys, 0..5), parted.read(&keys, 0..5)], [5, 5]);
    }
}

#[test]
fn sealed_files_show_neither_tokens_nor_names_nor_content() {
    let (open, sealed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let chain = fill(open.path(), None);
    fill(sealed.path(), Some(&key(1)));
    let files = |folder: &Path| extents(folder).into_iter().map(|path| fs::read(path).unwrap());
    let shows = |folder: &Path, part: &[u8]| {
        files(folder).any(|bytes| bytes.windows(part.len()).any(|window| window == part))
    };
    let tokens: Vec<u8> = [0x0eed_5eed_u32, 1].iter().flat_map(|it| it.to_le_bytes()).collect();
    let content: Vec<u8> = files(open.path()).next().unwrap()[4096..4160].to_vec();
    for part in [&tokens[..], &chain.name(1).to_bytes(), &content] {
        assert!(shows(open.path(), part) && !shows(sealed.path(), part));
    }
    let named = |folder: &Path, block| {
        let name = chain.name(block).to_string();
        extents(folder).iter().any(|path| path.to_str().unwrap().contains(&name))
    };
    assert!(named(open.path(), 1) && named(open.path(), 4));
    assert!((0..5).all(|block| !named(sealed.path(), block)));
    assert!(!sealed.path().join(root().to_string()).exists());
}

#[test]
fn equal_content_is_sealed_differently_each_time() {
    let [one, two] = [(); 2].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), Some(&key(1)));
        extents(folder.path()).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
    });
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(one.len(), two.len());
        assert_ne!(one[4096..], two[4096..]);
    }
}

/// What verifying each file of a folder gives.
fn verify(folder: &Path, key: Option<&StoreKey>) -> Vec<Result<Outline, Problem>> {
    let roots = list_folder(&Files, folder).unwrap();
    let all = roots.iter().flat_map(|root| root.extents.iter().map(|it| (root.root, it)));
    all.map(|(root, extent)| verify_extent(&Files, root, extent, key).unwrap()).collect()
}

#[test]
fn sealed_files_are_listed_and_verified_without_the_key_and_whole_with_it() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), Some(&key(1)));
    fill(folder.path(), None);
    for key in [None, Some(&key(1)), Some(&key(2))] {
        let verified = verify(folder.path(), key);
        assert_eq!(verified.len(), 4);
        assert!(verified.iter().all(Result::is_ok), "{verified:?}");
    }
    let roots = list_folder(&Files, folder.path()).unwrap();
    let sealed = roots.iter().find(|root| root.root != self::root()).unwrap();
    let outlines = sealed
        .extents
        .iter()
        .map(|extent| read_extent(&Files, sealed.root, extent, None).unwrap().unwrap());
    assert_eq!(outlines.map(|outline| outline.blocks).sum::<usize>(), 5);

    // Damage is seen without the key.
    let path = &sealed.extents[0].path;
    let good = fs::read(path).unwrap();
    let mut bytes = good.clone();
    bytes[4100] ^= 1;
    fs::write(path, &bytes).unwrap();
    for key in [None, Some(&key(1))] {
        assert_eq!(verify(folder.path(), key).iter().filter(|it| it.is_err()).count(), 1);
    }

    // A layer that is changed together with its checksums is seen with the key.
    let outline = outlines_of(&good);
    let layer = crc32c::crc32c(&bytes[4096..4096 + LAYERS[0] as usize]);
    let place = good.windows(4).position(|window| window == outline.checksums[0].to_le_bytes());
    let place = place.unwrap();
    bytes[place..place + 4].copy_from_slice(&layer.to_le_bytes());
    let end = 4096 - bytes[..4096].iter().rev().position(|byte| *byte != 0).unwrap();
    // The checksum of the header may end with zeros.
    let changed = (end..end + 4).any(|end| {
        let sum = crc32c::crc32c(&bytes[..end - 4]);
        bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        Outline::decode(&bytes[..4096], bytes.len() as u64).is_ok()
    });
    assert!(changed);
    fs::write(path, &bytes).unwrap();
    let failed = |key: Option<&StoreKey>| {
        verify(folder.path(), key).into_iter().find_map(Result::err).map(|it| it.to_string())
    };
    assert_eq!(failed(None), None);
    assert_eq!(failed(Some(&key(1))).as_deref(), Some("the header is not as it was sealed"));
}

fn outlines_of(bytes: &[u8]) -> Outline {
    Outline::decode(&bytes[..4096], bytes.len() as u64).unwrap()
}

#[test]
fn what_others_sealed_or_left_open_under_a_root_is_not_taken() {
    let [own, foreign, open] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let chain = fill(own.path(), Some(&key(1)));
    fill(foreign.path(), Some(&key(2)));
    fill(open.path(), None);
    let target = extents(own.path()).remove(0);
    for (folder, stays) in [(foreign, true), (open, false)] {
        let bytes = fs::read(extents(folder.path()).remove(0)).unwrap();
        fs::write(&target, &bytes).unwrap();
        let store = open_with(own.path(), Some(&key(1)));
        let keys = ready_keyspace(&store, 0..3);
        assert!(chain.read(&keys, 0..5) < 5);
        // Another process may have the key of what is sealed.
        assert_eq!(target.exists(), stays);
        assert_eq!(store.stats().failures, [u64::from(!stays), 0, 0, 0]);
    }
}
