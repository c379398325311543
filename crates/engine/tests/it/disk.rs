//! What is restored from disk has the bits of what is computed.

#[allow(dead_code, reason = "not all failures are needed here")]
#[path = "../../../store/tests/store/scripted.rs"]
mod scripted;

use crate::adapters::write_adapter;
use crate::checkpoints::{architectures, config, config_of, open, random, write};
use crate::determinism::{Answer, collect};
use crate::instruction_sets::cpu_with;
use crate::kinds::{has_states, has_windows};
use crate::reuse::{ask_in, request};
use backend::{AdapterSet, Bits, DeviceChoice, Mode, ScaledAdapter};
use engine::{
    DiskCache, DiskWrite, EngineHandle, EngineOptions, Event, KvMemory, LoadOptions, Request,
    Runner, start,
};
use formats::Checkpoint;
use kernels::Isa;
use kernels::kv::KvType;
use sched::CacheLookup;
use scripted::Scripted;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
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
    /// The fastest here where none is named.
    isa: Option<Isa>,
    bits: Bits,
}

const FAST: Setup = Setup {
    mode: Mode::Fast,
    kv_type: KvType::Bf16,
    weights: "digest",
    cache: 4 << 20,
    isa: None,
    bits: Bits::Fastest,
};

impl Stored {
    fn start(checkpoint: &Checkpoint, setup: &Setup, folder: &Path) -> Self {
        Self::open(checkpoint, setup, StoreOptions::new(folder))
    }

    fn open(checkpoint: &Checkpoint, setup: &Setup, options: StoreOptions) -> Self {
        let load = LoadOptions {
            device: setup.isa.map_or_else(DeviceChoice::default, cpu_with),
            bits: setup.bits,
            mode: setup.mode,
            kv_type: Some(setup.kv_type),
            threads: 2,
            block: BLOCK,
            chunk: Some(64),
            parallel: 4,
            kv_memory: KvMemory::Bytes(setup.cache),
            ..LoadOptions::default()
        };
        let store = Arc::new(Store::open(options).unwrap());
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

    /// What the cache, and the disk under it, held of a prompt.
    fn look_up(&self, prompt: &[u32]) -> CacheLookup {
        let mut generation = self.handle.submit(request(prompt)).unwrap();
        let events = std::iter::from_fn(|| generation.next_blocking());
        let lookups = events.filter_map(|event| match event {
            Event::Admitted { lookup, .. } => Some(lookup),
            _ => None,
        });
        lookups.last().unwrap()
    }

    fn ask(&self, prompt: &[u32]) -> (usize, Answer) {
        ask_in([0; 16], &self.handle, prompt)
    }
}

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| i * 37 % 131).collect()
}

/// Asks engines one after the other, each with the number of tokens that it finds, if one is
/// expected, and compares their answers with that of an engine without a disk.
fn check(checkpoint: &Checkpoint, setup: &Setup, prompts: &[(Vec<u32>, Option<usize>)]) {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{} {:?}", checkpoint.config().architecture, setup.kv_type);
    for (at, (prompt, cached)) in prompts.iter().enumerate() {
        let engine = Stored::start(checkpoint, setup, folder.path());
        let (found, answer) = engine.ask(prompt);
        assert!(cached.is_none_or(|cached| cached == found), "{name}: {found} of prompt {at}");
        assert_eq!(engine.store.stats().failures, [0; 4], "{name}");
        engine.end();
        let empty = tempfile::tempdir().unwrap();
        let engine = Stored::start(checkpoint, setup, empty.path());
        assert_eq!(engine.ask(prompt), (0, answer), "{name}: prompt {at}");
        engine.end();
    }
}

/// The tokens found in `folder` and the answer, by an engine with an instruction set.
fn ask_with(
    checkpoint: &Checkpoint,
    folder: &Path,
    (isa, bits): (Isa, Bits),
    prompt: &[u32],
) -> (usize, Answer) {
    let engine = Stored::start(checkpoint, &Setup { isa: Some(isa), bits, ..FAST }, folder);
    let answer = engine.ask(prompt);
    engine.end();
    answer
}

#[test]
fn blocks_of_another_instruction_set_are_found_in_the_same_class() {
    let prompt = prompt(90);
    for architecture in ["qwen3", "qwen3_5", "deepseek_v3", "gpt_oss"] {
        let (checkpoint, _folder) = random(architecture);
        for by in Isa::available() {
            let folder = tempfile::tempdir().unwrap();
            let ask = |isa| ask_with(&checkpoint, folder.path(), (isa, Bits::Portable), &prompt);
            let (found, answer) = ask(by);
            assert_eq!(found, 0, "{architecture} {by:?}");
            for isa in Isa::available() {
                let (found, again) = ask(isa);
                assert!(found > 0 && again == answer, "{architecture} of {by:?} with {isa:?}");
            }
        }
    }
}

#[test]
fn blocks_of_another_class_are_not() {
    let (checkpoint, _folder) = random("qwen3");
    let prompt = prompt(90);
    for isa in Isa::available().into_iter().filter(|isa| isa.has_bf16_dot()) {
        let folder = tempfile::tempdir().unwrap();
        for (bits, is_found) in
            [(Bits::Portable, false), (Bits::Fastest, false), (Bits::Fastest, true)]
        {
            let (found, _) = ask_with(&checkpoint, folder.path(), (isa, bits), &prompt);
            assert_eq!(found > 0, is_found, "{isa:?} {bits:?}");
        }
    }
}

#[test]
fn what_is_stored_with_adapters_is_found_with_these_alone() {
    let (checkpoint, _folder) = random("qwen3");
    let (folder, adapter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_adapter(adapter.path(), &checkpoint, 1, |_| true);
    let runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
    let adapter = runner.adapter_base().open(adapter.path()).unwrap().adapter;
    let set = |scale| AdapterSet::new([ScaledAdapter { adapter: Arc::clone(&adapter), scale }]);
    let ask = |scale| {
        let engine = Stored::start(&checkpoint, &FAST, folder.path());
        let asked = Request { adapters: Some(set(scale)), ..request(&prompt(90)) };
        let (answer, finished) = collect(engine.handle.submit(asked).unwrap());
        engine.end();
        (finished.usage.cached_tokens, answer)
    };
    let (first, second) = ([1.0, 0.0, 0.5].map(ask), [1.0, 0.0, 0.5].map(ask));
    for (cold, warm) in first.into_iter().zip(second) {
        assert_eq!(cold.0, 0);
        assert!(warm.0 >= 80 && warm.1 == cold.1, "{} found", warm.0);
    }
}

/// Whether a model has windows, or states, which decide what is found.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Plain,
    Windowed,
    WithStates,
}

impl Rows {
    fn of(architecture: &str) -> Self {
        let config = config(architecture);
        match has_states(&config) {
            true => Self::WithStates,
            false if has_windows(&config) => Self::Windowed,
            false => Self::Plain,
        }
    }
}

#[test]
fn restored_equals_computed() {
    let long = prompt(150);
    let branched: Vec<u32> = long[..70].iter().copied().chain([5; 30]).collect();
    let prompts = [&long, &long, &branched, &branched, &long[..60].to_vec(), &long[..20].to_vec()];
    for architecture in architectures() {
        let found = match Rows::of(architecture) {
            // All full blocks, though not the rest of the last one.
            Rows::Plain => [0, 144, 64, 96, 48, 0].map(Some),
            // What rows see before a position at which no message ends is not stored.
            Rows::Windowed => [Some(0), Some(144), None, Some(96), None, Some(0)],
            // States are exact.
            Rows::WithStates => [0, 149, 0, 99, 0, 0].map(Some),
        };
        let prompts: Vec<_> = prompts.into_iter().cloned().zip(found).collect();
        let (checkpoint, _folder) = random(architecture);
        check(&checkpoint, &FAST, &prompts);
        let exact = |kv_type| Setup { mode: Mode::Exact, kv_type, ..FAST };
        check(&checkpoint, &exact(KvType::F32), &prompts);
        if ["qwen3", "deepseek_v3"].contains(&architecture) {
            check(&checkpoint, &exact(KvType::F16), &prompts);
            check(&checkpoint, &Setup { kv_type: KvType::Q8_0, ..FAST }, &prompts);
        }
    }
}

#[test]
fn a_conversation_that_parts_where_a_message_ends_is_restored() {
    let long = prompt(150);
    let branched: Vec<u32> = long[..70].iter().copied().chain([5; 30]).collect();
    let mut tried = 0;
    for architecture in architectures().filter(|name| Rows::of(name) != Rows::Plain) {
        let (checkpoint, _folder) = random(architecture);
        let folder = tempfile::tempdir().unwrap();
        let engine = Stored::start(&checkpoint, &FAST, folder.path());
        let marked = Request { marks: vec![70], ..request(&long) };
        collect(engine.handle.submit(marked).unwrap());
        engine.end();
        let engine = Stored::start(&checkpoint, &FAST, folder.path());
        let found = if Rows::of(architecture) == Rows::WithStates { 70 } else { 64 };
        let (cached, answer) = engine.ask(&branched);
        assert_eq!(cached, found, "{architecture}");
        engine.end();
        let empty = tempfile::tempdir().unwrap();
        let engine = Stored::start(&checkpoint, &FAST, empty.path());
        assert_eq!(engine.ask(&branched), (0, answer), "{architecture}");
        engine.end();
        tried += 1;
    }
    assert!(tried >= 4, "{tried}");
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

/// So that a process which is killed loses little.
#[test]
fn blocks_are_stored_while_their_sequence_runs() {
    // Two blocks have 4 MiB, as an extent.
    let wide = config_of("llama", 8).with(|said| {
        (said.heads, said.kv_heads, said.head_dim, said.rope.dim) = (32, 32, 128, 128);
    });
    let (model, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(model.path(), &wide, |_, _| {});
    let setup = Setup { cache: 64 << 20, ..FAST };
    let engine = Stored::start(&open(model.path()), &setup, folder.path());
    let request = Request { max_tokens: Some(180), ..request(&prompt(70)) };
    let mut generation = engine.handle.submit(request).unwrap();
    let mut next_ids = |count| {
        let events = std::iter::from_fn(|| generation.next_blocking());
        events.filter(|event| matches!(event, Event::Token { .. })).take(count).count()
    };
    assert_eq!(next_ids(10), 10);
    // The sequence waits for its reader before its end.
    let end = Instant::now() + Duration::from_secs(60);
    while engine.store.stats().blocks < 4 {
        assert!(Instant::now() < end, "{:?}", engine.store.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(next_ids(usize::MAX), 170);
    engine.end();
}

#[test]
fn tokens_from_disk_are_told_from_others() {
    let (checkpoint, _folder) = random("qwen3");
    let folder = tempfile::tempdir().unwrap();
    let counts = |lookup: CacheLookup| (lookup.looked_up, lookup.found, lookup.restored);
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    assert_eq!(counts(engine.look_up(&prompt(150))), (149, 0, 0));
    assert_eq!(counts(engine.look_up(&prompt(150))), (149, 149, 0));
    engine.end();
    let engine = Stored::start(&checkpoint, &FAST, folder.path());
    assert_eq!(counts(engine.look_up(&prompt(150))), (149, 144, 144));
    assert_eq!(counts(engine.look_up(&prompt(150))), (149, 149, 0));
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

#[test]
fn errors_of_the_disk_change_no_answer() {
    let (mut read, mut failed) = (0, 0);
    for architecture in ["qwen3", "mistral", "qwen3_next"] {
        let (checkpoint, _folder) = random(architecture);
        let folder = tempfile::tempdir().unwrap();
        let prompts = [150, 90, 150, 120, 150, 60].map(prompt);
        let alone = Stored::start(&checkpoint, &FAST, tempfile::tempdir().unwrap().path());
        let expected = prompts.each_ref().map(|prompt| alone.ask(prompt).1);
        alone.end();
        for seed in 0..6 {
            let disk = Scripted::default();
            let options =
                StoreOptions { disk: Arc::new(disk.clone()), ..StoreOptions::new(folder.path()) };
            let engine = Stored::open(&checkpoint, &FAST, options);
            // A request waits until the store has found what it has.
            engine.ask(&prompt(1));
            disk.fail_at_random(seed);
            for (prompt, expected) in prompts.iter().zip(&expected) {
                assert_eq!(engine.ask(prompt).1, *expected, "{architecture}, seed {seed}");
            }
            let stats = engine.store.stats();
            read += stats.read_bytes;
            failed += stats.failures.iter().sum::<u64>();
            engine.end();
        }
    }
    assert!(read > 0 && failed > 0, "{read} bytes, {failed} failures");
}

/// The extents below a folder.
fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    if !path.is_dir() {
        let is_extent = path.extension().is_some_and(|name| name == "gkv");
        return is_extent.then(|| path.to_owned()).into_iter().collect();
    }
    path.read_dir().unwrap().flat_map(|entry| walk(&entry.unwrap().path())).collect()
}
