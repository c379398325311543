//! Stores over folders of this machine, and over a file system that fails as scripted.

mod budget;
mod common;
mod failures;
mod scripted;
mod sealed;
mod transfer;

use common::*;
use std::time::Duration;
use store::{Kind, Layout, Store, StoreError, StoreOptions};

#[test]
fn what_is_written_is_found_again_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::new(7, 40);
    {
        let store = open(folder.path());
        let keys = keyspace(&store, 0..3);
        assert_eq!(keys.find(0, chain.names(0..40)).len(), 0);
        chain.write(&keys, 0..10, 0..3);
        chain.write(&keys, 10..40, 0..3);
        assert!(store.flush(LONG));
        // The process that wrote them finds them too.
        assert_eq!(blocks(&keys.find(0, chain.names(0..40))), 40);
    }
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    let runs = keys.find(0, chain.names(0..40));
    assert_eq!(runs.iter().map(|run| run.blocks).collect::<Vec<_>>(), [10, 30]);
    assert_eq!(chain.read(&keys, 0..40), 40);
    // From the middle, and a chain that leaves this one.
    assert_eq!(chain.read(&keys, 5..12), 7);
    assert_eq!(blocks(&keys.find(0, Chain::new(8, 3).names(0..3))), 0);
    assert_eq!(blocks(&keys.find(1, chain.names(0..3))), 0);
    let stats = store.stats();
    assert_eq!((stats.blocks, stats.failures), (40, [0; 4]));
    assert!(keys.read_rate().unwrap() > 0);
}

#[test]
fn other_processes_see_new_extents() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| open(folder.path()));
    let [writer, reader] = [&one, &two].map(|store| ready_keyspace(store, 0..3));
    let chain = Chain::new(7, 4);
    chain.write(&writer, 0..4, 0..3);
    assert!(one.flush(LONG));
    let end = std::time::Instant::now() + LONG;
    while blocks(&reader.find(0, chain.names(0..4))) == 0 {
        assert!(std::time::Instant::now() < end, "it is never seen");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(chain.read(&reader, 0..4), 4);
}

#[test]
fn a_file_of_one_rank_loads_on_any_stages_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (whole, parted) = (Chain::new(7, 5), Chain::new(8, 5));
    let ranks = [0..1, 1..3];
    whole.write(&ready_keyspace(&store, 0..3), 0..5, 0..3);
    for layers in &ranks {
        let keys = ready_keyspace(&store, layers.clone());
        parted.write(&keys, 0..5, layers.clone());
    }
    assert!(store.flush(LONG));
    for layers in ranks.into_iter().chain(std::iter::once(0..3)) {
        let keys = ready_keyspace(&store, layers);
        assert_eq!(whole.read(&keys, 0..5), 5);
        assert_eq!(parted.read(&keys, 0..5), 5);
    }
}

#[test]
fn states_are_found_by_their_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    let chain = Chain::new(7, 2);
    let name = chain.name(1).state(&[5, 6]);
    keys.write(store::ToWrite {
        kind: 1,
        parent: chain.name(1),
        depth: 2,
        blocks: vec![(name, vec![5, 6])],
        bytes: state_bytes(&keys),
        micros: 1,
    });
    assert!(store.flush(LONG));
    assert!(keys.has(1, name) && !keys.has(0, name));
    assert!(!keys.has(1, chain.name(1).state(&[5])));
    let run = keys.find(1, [name].into_iter()).remove(0);
    keys.read(3, run, vec![5, 6]);
    let arrival = keys.wait(LONG).unwrap();
    assert_eq!((arrival.ticket, arrival.blocks), (3, 1));
    assert_eq!(arrival.bytes[..], [9; STATE_BYTES]);
}

#[test]
fn blocks_of_whole_pages_come_back_whole_and_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    // A block is longer than what is written or read at once.
    let kind = Kind { layer_bytes: vec![4096, 5 << 20], is_state: false };
    let keyspace = |layers| {
        let layout = Layout { positions: POSITIONS, layers, kinds: vec![kind.clone()] };
        let keys = store.keyspace(root(), layout, "{}");
        assert!(store.flush(LONG));
        keys
    };
    let (keys, chain, own) = (keyspace(0..2), Chain::new(7, 2), (5 << 20) + 4096);
    let byte = |at: usize| (at / 4096 * 31 + at * 7) as u8;
    let mut bytes = keys.buffer(2 * own).unwrap();
    bytes.append(2 * own).iter_mut().enumerate().for_each(|(at, value)| *value = byte(at));
    let blocks = chain.tokens().chunks(POSITIONS).map(<[u32]>::to_vec).collect::<Vec<_>>();
    let blocks = chain.names(0..2).zip(blocks).collect();
    keys.write(store::ToWrite { kind: 0, parent: root(), depth: 0, blocks, bytes, micros: 1 });
    assert!(store.flush(LONG));
    // All of both blocks, both of one, and one layer of each.
    for (layers, first, starts) in [(0..2, 0, 0), (0..2, 1, own), (1..2, 0, 4096)] {
        let keys = keyspace(layers.clone());
        let run = keys.find(0, chain.names(first..2)).remove(0);
        keys.read(5, run, chain.tokens()[first * POSITIONS..].to_vec());
        let arrival = keys.wait(LONG).unwrap();
        assert_eq!((arrival.ticket, arrival.blocks), (5, 2 - first));
        let read = arrival.bytes.len() / arrival.blocks;
        let is_equal =
            |(at, value): (usize, &u8)| *value == byte(starts + at / read * own + at % read);
        assert!(arrival.bytes.iter().enumerate().all(is_equal), "{layers:?} from block {first}");
    }
}

#[test]
fn what_is_stored_twice_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let keys = ready_keyspace(&store, 0..3);
    let chain = Chain::new(7, 4);
    (0..3).for_each(|_| chain.write(&keys, 0..4, 0..3));
    assert!(store.flush(LONG));
    let stats = store.stats();
    assert_eq!((stats.bytes, stats.dropped_writes), (stats.written_bytes, 0));
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("format"), "gannet kv 2\nmore").unwrap();
    let Err(error) = Store::open(StoreOptions::new(folder.path())) else { panic!("it opens") };
    let shown = folder.path().display();
    let expected =
        format!("{shown}: expected \"gannet kv 1\" in the file format, found \"gannet kv 2\"");
    assert_eq!(error.to_string(), expected);
    let file = folder.path().join("format");
    let Err(StoreError::Io { .. }) = Store::open(StoreOptions::new(file)) else { panic!("opens") };
}
