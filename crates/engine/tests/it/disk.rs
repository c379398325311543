//! What is restored from disk has the bits of what is computed.

use crate::checkpoints::{architectures, config, random};
use crate::determinism::Answer;
use crate::reuse::ask_in;
use engine::{
    DiskCache, DiskWrite, EngineHandle, EngineOptions, KvMemory, KvType, LoadOptions, Mode, Runner,
    start,
};
use formats::Checkpoint;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use store::{Store, StoreOptions};

const BLOCK: usize = 16;

/// An engine whose blocks are stored in a folder.
struct Stored {
    handle: EngineHandle,
    thread: JoinHandle<()>,
    store: Arc<Store>,
}

/// How an engine loads its model.
#[derive(Clone)]
struct Setup {
    mode: Mode,
    kv_type: KvType,
    weights: &'static str,
    cache: usize,
}

const FAST: Setup =
    Setup { mode: Mode::Fast, kv_type: KvType::Bf16, weights: "digest", cache: 4 << 20 };

impl Stored {
    fn start(checkpoint: &Checkpoint, setup: &Setup, folder: &Path) -> Self {
        let load = LoadOptions {
            mode: setup.mode,
            kv_type: Some(setup.kv_type),
            threads: 2,
            block: BLOCK,
            chunk: 64,
            kv_memory: KvMemory::Bytes(setup.cache),
            ..LoadOptions::default()
        };
        let store = Arc::new(Store::open(StoreOptions::new(folder)).unwrap());
        let digest = Arc::new(OnceLock::from(setup.weights.to_owned()));
        let disk = DiskCache {
            write: DiskWrite::All,
            min_tokens: 32,
            ..DiskCache::new(Arc::clone(&store), digest)
        };
        let runner = Runner::load(checkpoint, &load).unwrap();
        let options = EngineOptions { disk: Some(disk), ..EngineOptions::default() };
        let (handle, thread) = start(runner, options);
        Self { handle, thread, store }
    }

    /// Ends the engine, which stores what is left.
    fn end(self) {
        drop(self.handle);
        self.thread.join().unwrap();
    }

    fn ask(&self, prompt: &[u32]) -> (usize, Answer) {
        ask_in([0; 16], &self.handle, prompt)
    }
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| i * 37 % 131).collect()
}

/// Asks engines one after the other, each with the number of tokens that it finds, and compares
/// their answers with that of an engine without a disk.
fn check(checkpoint: &Checkpoint, setup: &Setup, prompts: &[(Vec<u32>, usize)]) {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{} {:?}", checkpoint.config().architecture, setup.kv_type);
    for (at, (prompt, cached)) in prompts.iter().enumerate() {
        let engine = Stored::start(checkpoint, setup, folder.path());
        let (found, answer) = engine.ask(prompt);
        assert_eq!(found, *cached, "{name}: prompt {at}");
        assert_eq!(engine.store.stats().failures, [0; 4], "{name}");
        engine.end();
        let empty = tempfile::tempdir().unwrap();
        let engine = Stored::start(checkpoint, setup, empty.path());
        assert_eq!(engine.ask(prompt), (0, answer), "{name}: prompt {at}");
        engine.end();
    }
}

/// Whether blocks of an architecture are stored.
fn is_stored(architecture: &&'static str) -> bool {
    let config = config(architecture);
    let windows = config.windows.iter().any(Option::is_some);
    !windows && config.delta.is_none() && config.compressed().is_none()
}

#[test]
fn restored_equals_computed() {
    let long = prompt(150);
    let branched: Vec<u32> = long[..70].iter().copied().chain([5; 30]).collect();
    let prompts = [
        (long.clone(), 0),
        // All full blocks, though not the rest of the last one.
        (long.clone(), 144),
        (branched.clone(), 64),
        (branched, 96),
        (long[..60].to_vec(), 48),
        (long[..20].to_vec(), 0),
    ];
    let mut stored = 0;
    for architecture in architectures().filter(is_stored) {
        let (checkpoint, _folder) = random(architecture);
        check(&checkpoint, &FAST, &prompts);
        stored += 1;
    }
    assert!(stored >= 9, "{stored}");
    for architecture in ["qwen3", "deepseek_v3"] {
        let (checkpoint, _folder) = random(architecture);
        for kv_type in [KvType::F32, KvType::F16] {
            check(&checkpoint, &Setup { mode: Mode::Exact, kv_type, ..FAST }, &prompts);
        }
        check(&checkpoint, &Setup { kv_type: KvType::Q8_0, ..FAST }, &prompts);
    }
}

#[test]
fn another_model_mode_type_or_arithmetic_finds_nothing() {
    let (checkpoint, _folder) = random("qwen3");
    let (other, _other_folder) = random("llama");
    let folder = tempfile::tempdir().unwrap();
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    engine.ask(&prompt(100));
    engine.end();
    let setups = [
        (&other, FAST),
        (&checkpoint, Setup { weights: "others", ..FAST }),
        (&checkpoint, Setup { kv_type: KvType::F16, ..FAST }),
        (&checkpoint, Setup { mode: Mode::Exact, ..FAST }),
    ];
    for (checkpoint, setup) in setups {
        let engine = Stored::start(checkpoint, &setup, folder.path());
        assert_eq!(engine.ask(&prompt(100)).0, 0);
        engine.end();
    }
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    assert_eq!(engine.ask(&prompt(100)).0, 96);
    engine.end();
}

#[test]
fn a_tenant_finds_nothing_of_another_on_disk() {
    let (checkpoint, _folder) = random("qwen3");
    let folder = tempfile::tempdir().unwrap();
    let spaces = [[1; 16], [2; 16], [0; 16]];
    for space in spaces {
        let engine = Stored::start(&checkpoint, &FAST, folder.path());
        assert_eq!(ask_in(space, &engine.handle, &prompt(100)).0, 0);
        engine.end();
    }
    for space in spaces {
        let engine = Stored::start(&checkpoint, &FAST, folder.path());
        assert_eq!(ask_in(space, &engine.handle, &prompt(100)).0, 96);
        engine.end();
    }
}

#[test]
fn what_memory_evicts_is_found_on_disk() {
    let (checkpoint, _folder) = random("qwen3");
    let folder = tempfile::tempdir().unwrap();
    // A cache of a few prompts, and many prompts.
    let setup = Setup { cache: 1 << 20, ..FAST };
    let engine = Stored::start(&checkpoint, &setup, folder.path());
    let prompts: Vec<Vec<u32>> = (0..40)
        .map(|seed| (0..120).map(|at| (at * 7 + seed * 13 + at * seed) % 131).collect())
        .collect();
    let first: Vec<_> = prompts.iter().map(|prompt| engine.ask(prompt).1).collect();
    let mut found = 0;
    for (prompt, expected) in prompts.iter().zip(&first) {
        let (cached, answer) = engine.ask(prompt);
        assert_eq!(answer, *expected);
        found += cached;
    }
    assert!(engine.store.stats().read_bytes > 0);
    // More only where it is measured to be faster than computing, which it is not here.
    assert!(found >= 96, "{found}");
    engine.end();
}

#[test]
fn damaged_files_change_no_answer() {
    let (checkpoint, _folder) = random("qwen3");
    let folder = tempfile::tempdir().unwrap();
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    let (_, expected) = engine.ask(&prompt(200));
    engine.end();
    let mut files = 0;
    for root in folder.path().read_dir().unwrap().map(|it| it.unwrap().path()) {
        for file in walk(&root) {
            let mut bytes = std::fs::read(&file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            files += 1;
        }
    }
    assert!(files > 0);
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    assert_eq!(engine.ask(&prompt(200)).1, expected);
    assert!(engine.store.stats().failures[0] > 0);
    engine.end();
}

/// The extents below a folder.
fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    if !path.is_dir() {
        let is_extent = path.extension().is_some_and(|name| name == "gkv");
        return is_extent.then(|| path.to_owned()).into_iter().collect();
    }
    path.read_dir().unwrap().flat_map(|entry| walk(&entry.unwrap().path())).collect()
}
