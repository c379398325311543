//! Chains that are taken from one folder to another.

use crate::common::*;
use crate::failures::extents;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use store::{
    Imported, Keyspace, Store, StoreKey, StoreOptions, ToWrite, TransferError, TransferReader,
    TransferWriter,
};

const ABOUT: &str = r#"{"model": "m"}"#;

/// Takes the chain of these tokens out; returns the file and how many tokens it covers.
fn export(keys: &Keyspace, tokens: &[u32]) -> (Vec<u8>, usize) {
    let mut out = TransferWriter::new(Cursor::new(Vec::new()), root(), ABOUT, tokens).unwrap();
    let covered = keys.export(root(), tokens, &mut out).unwrap();
    let (file, bytes) = out.finish().unwrap();
    assert_eq!(file.get_ref().len() as u64, bytes);
    (file.into_inner(), covered)
}

/// Puts the extents of a file into a folder.
fn import(store: &Store, file: &[u8]) -> Result<Vec<Imported>, TransferError> {
    let mut reader = TransferReader::new(file)?;
    assert_eq!((reader.root(), reader.about()), (root(), ABOUT));
    store.describe(reader.root(), reader.about())?;
    let mut all = Vec::new();
    while let Some((header, bytes)) = reader.next_extent()? {
        all.push(store.import(header, bytes)?);
    }
    assert_eq!(all.len(), reader.extents() as usize);
    Ok(all)
}

/// A folder with a chain of nine blocks in two extents, and a state after them.
fn filled(folder: &Path, key: Option<&StoreKey>) -> (Store, Keyspace, Chain) {
    let store = open_with(folder, key);
    let keys = ready_keyspace(&store, 0..3);
    let chain = Chain::new(7, 9);
    chain.write(&keys, 0..4, 0..3);
    chain.write(&keys, 4..9, 0..3);
    assert!(store.flush(LONG));
    (store, keys, chain)
}

#[test]
fn a_chain_is_taken_to_another_folder_and_to_another_key() {
    for from in &keys() {
        for to in &keys() {
            let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let (_store, keys, chain) = filled(folders[0].path(), from.as_ref());
            let mut tokens = chain.tokens();
            tokens.extend([1, 2]);
            let (file, covered) = export(&keys, &tokens);
            assert_eq!(covered, 36);
            assert_eq!(TransferReader::new(&file[..]).unwrap().tokens(), tokens);
            let target = open_with(folders[1].path(), to.as_ref());
            assert_eq!(import(&target, &file).unwrap(), [Imported::Written; 2]);
            assert_eq!(import(&target, &file).unwrap(), [Imported::Present; 2]);
            let found = ready_keyspace(&target, 0..3);
            assert_eq!(chain.read(&found, 0..9), 9);
            // A part of the chain, and one that was never stored.
            let branch = chain.branch(6, 99);
            assert_eq!(export(&found, &branch.tokens()).1, 24);
            assert_eq!(export(&found, &Chain::new(8, 3).tokens()).1, 0);
            // Stores that are open see it as they see what other processes write.
            assert_eq!(extents(folders[1].path()).len(), 2);
        }
    }
}

#[test]
fn states_and_blocks_after_a_gap_are_taken_too() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (store, keys, chain) = filled(folders[0].path(), None);
    let state = chain.name(4).state(&chain.tokens()[20..23]);
    keys.write(ToWrite {
        kind: 1,
        parent: chain.name(4),
        depth: 5,
        blocks: vec![(state, chain.tokens()[20..23].to_vec())],
        bytes: state_bytes(&keys),
        micros: 1,
    });
    assert!(store.flush(LONG));
    // The first extent is gone.
    let all = extents(folders[0].path());
    let first = format!("{}-0-0-3.gkv", chain.name(3));
    fs::remove_file(all.iter().find(|path| path.ends_with(&first)).unwrap()).unwrap();
    let again = open(folders[0].path());
    let (file, covered) = export(&ready_keyspace(&again, 0..3), &chain.tokens());
    assert_eq!(covered, 0);
    let target = open(folders[1].path());
    assert_eq!(import(&target, &file).unwrap(), [Imported::Written; 2]);
    let found = ready_keyspace(&target, 0..3);
    assert_eq!(chain.read(&found, 4..9), 5);
    assert!(found.has(1, state) && !found.has(0, chain.name(0)));
}

#[test]
fn what_arrives_of_other_readings_is_not_taken_out() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (store, keys, chain) = filled(folders[0].path(), None);
    let other = Chain::new(8, 9);
    other.write(&keys, 0..4, 0..3);
    other.write(&keys, 4..9, 0..3);
    assert!(store.flush(LONG));
    for _ in 0..100 {
        for (run, tokens) in keys.find(0, other.names(0..9)).iter().zip([0..16, 16..36]) {
            keys.read(u64::MAX, run.clone(), other.tokens()[tokens].to_vec());
        }
    }
    let (file, covered) = export(&keys, &chain.tokens());
    assert_eq!(covered, 36);
    let target = open(folders[1].path());
    assert_eq!(import(&target, &file).unwrap(), [Imported::Written; 2]);
    assert_eq!(chain.read(&ready_keyspace(&target, 0..3), 0..9), 9);
}

#[test]
fn the_end_of_a_chain_is_there_with_its_last_block_and_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let (store, keys, chain) = filled(folder.path(), None);
    let rest = [5, 6];
    let tokens = [chain.tokens(), rest.to_vec()].concat();
    // Less than a block has no end, and a chain that was never stored is not there.
    assert!(keys.has_end(root(), &[]) && keys.has_end(root(), &rest));
    assert!(!keys.has_end(root(), &Chain::new(8, 3).tokens()));
    assert!(!keys.has_end(root(), &tokens));
    for (state, has_it) in [(vec![], false), (rest.to_vec(), true)] {
        keys.write(ToWrite {
            kind: 1,
            parent: chain.name(8),
            depth: 9,
            blocks: vec![(chain.name(8).state(&state), state)],
            bytes: state_bytes(&keys),
            micros: 1,
        });
        assert!(store.flush(LONG));
        assert_eq!(keys.has_end(root(), &tokens), has_it);
    }
    // A state without the last block.
    let branch = chain.branch(9, 99);
    assert!(!keys.has_end(root(), &branch.tokens()));
}

#[test]
fn cut_or_flipped_at_any_byte_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (store, keys, chain) = filled(folder.path(), None);
    let (file, _) = export(&keys, &chain.tokens());
    let target = tempfile::tempdir().unwrap();
    let places = (0..400).chain((400..file.len()).step_by(61));
    for (at, cut) in places.flat_map(|at| [(at, false), (at, true)]) {
        let mut bad = file.clone();
        match cut {
            true => bad.truncate(at),
            false => bad[at] ^= 1 << (at % 8),
        }
        let read = || -> Result<usize, TransferError> {
            let mut reader = TransferReader::new(&bad[..])?;
            let mut extents = 0;
            while let Some((header, bytes)) = reader.next_extent()? {
                assert_eq!(bytes.len() as u64 % header.outline.block_bytes(), 0);
                extents += 1;
            }
            Ok(extents)
        };
        assert!(!read().unwrap_err().to_string().is_empty(), "at {at}, cut: {cut}");
    }
    let mut longer = file.clone();
    longer.push(0);
    let error = import(&open(target.path()), &longer).unwrap_err().to_string();
    assert_eq!(error, "more behind the last of 2 extents");
    drop(store);
}

#[test]
fn contents_of_a_file_that_lie_are_refused_without_taking_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, keys, chain) = filled(folder.path(), None);
    let (file, _) = export(&keys, &chain.tokens());
    let problem = |at: usize, bytes: &[u8]| {
        let mut bad = file.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        // With a right checksum of the header of the file.
        let end = 44 + 4 * chain.tokens().len() + ABOUT.len();
        let sum = crc32c::crc32c(&bad[..end]);
        bad[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        let mut reader = match TransferReader::new(&bad[..]) {
            Ok(reader) => reader,
            Err(error) => return error.to_string(),
        };
        reader.next_extent().map(drop).unwrap_err().to_string()
    };
    assert_eq!(problem(8, &[9]), "version 9, which is later than 1");
    assert_eq!(problem(16, &[9]), "extent 1: it is of another root");
    assert!(problem(32, &[0, 0, 0, 0]).contains("more behind"), "{}", problem(32, &[0; 4]));
    assert!(problem(36, &[0xff; 4]).contains("a header of 4096 bytes with 4294967295 tokens"));
    assert!(problem(40, &[0xff; 4]).contains("a description of 4294967295 bytes"));
    // More tokens than the header has bytes for.
    assert!(problem(36, &[0, 4]).contains("a header of 4096 bytes with 1024 tokens"));
    assert!(problem(12, &[0xff; 4]).contains("a header of 4294967295 bytes"));
    // The numbers of the first extent.
    assert!(problem(4096 + 64, &[0xff; 8]).contains("more bytes than a file can have"));
    assert!(problem(4096 + 68, &[1]).contains("expected at most 1073741824"));
    assert_eq!(problem(4096 + 12, &[0, 0, 0, 1]), "extent 1: the file is cut off");
    assert_eq!(problem(4096 + 8, &[2]), "extent 1: the checksum of the header is wrong");
}

#[test]
fn what_is_put_in_stays_within_the_budget() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (_store, keys, chain) = filled(folders[0].path(), None);
    let (file, _) = export(&keys, &chain.tokens());
    let open = |max_bytes| {
        Store::open(StoreOptions { max_bytes, ..StoreOptions::new(folders[1].path()) }).unwrap()
    };
    assert_eq!(import(&open(10_000), &file).unwrap(), [Imported::NoSpace; 2]);
    assert!(extents(folders[1].path()).is_empty());
    // The first of both, which gives way to nothing that follows it.
    let kept = import(&open(50_000), &file).unwrap();
    assert_eq!(kept[0], Imported::Written);
    let bytes = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
    assert!(extents(folders[1].path()).iter().map(bytes).sum::<u64>() <= 50_000);
}
