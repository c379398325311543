//! Decoding allocates nothing. A separate test program, because it counts the allocations of all
//! threads.
#![allow(unsafe_code)]

#[path = "it/checkpoints.rs"]
mod checkpoints;

use backend::{Adapter, AdapterSet, ScaledAdapter};
use backend::{LowRank, Mode};
use dist::Local;
use engine::{
    BLOCK, EngineHandle, EngineOptions, Event, Follower, Generation, KvMemory, LoadOptions,
    MAX_DRAFTED, Request, Runner, SamplingParams, SingleSequence, Speculate, WeightsMemory, start,
};
use models::Ranks;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    run();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

/// Tokens read before, with the prompt as many as penalties look back at.
const WARM_UP: usize = 61;
/// Tokens read while counting.
const TOKENS: usize = 112;
/// Tokens per sequence that wait for a reader at most: its channel holds 64 events, 3 of which stay
/// free for the end, and those of the drafts of a step.
const AHEAD: usize = 61 + MAX_DRAFTED;
/// Allocations while [`TOKENS`] are read. The channel to the reader takes a block of 32 events from
/// the allocator whenever the reader lags behind as never before, and the cache a note of each
/// block of each group of rows that becomes full; nothing else may. The engine may have been level
/// with the reader at first, and be ahead at the end.
fn max_allocations(groups: usize) -> usize {
    (TOKENS + AHEAD).div_ceil(32) + groups * (TOKENS + AHEAD).div_ceil(BLOCK)
}

/// Held by a test while it runs, because two at once would count each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn decoding_allocates_nothing() {
    let _alone = alone();
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0, "the counter counts");
    for architecture in checkpoints::architectures() {
        let (checkpoint, _folder) = checkpoints::random(architecture);
        let options = LoadOptions { threads: 2, ..LoadOptions::default() };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        // An expert is packed when a row first chooses it.
        while runner.prepare_weights() {}
        assert_eq!(forward_passes(&mut runner), 0, "{architecture}: forward pass");
        let most = max_allocations(runner.blocks().count());
        let count = engine_steps(runner);
        assert!(count <= most, "{architecture}: {count} in {TOKENS} steps of the engine");
    }
}

#[test]
fn decoding_with_adapters_allocates_nothing() {
    let _alone = alone();
    let (checkpoint, _folder) = checkpoints::random("llama");
    let options = LoadOptions { threads: 2, ..LoadOptions::default() };
    let mut runner = Runner::load(&checkpoint, &options).unwrap();
    while runner.prepare_weights() {}
    let shapes = runner.adapter_base().shapes();
    let pair = |[outputs, inputs]: &[usize; 2]| {
        let (a, b) = (vec![0.01; 5 * inputs], vec![0.01; outputs * 5]);
        Some(LowRank::new(5, [&a, &b], 1.0, Mode::Fast).unwrap())
    };
    let pairs = shapes.values().map(pair).collect();
    let adapter = Arc::new(Adapter::new("digest".to_owned(), pairs));
    runner.set_adapters(AdapterSet::new([ScaledAdapter { adapter, scale: 1.0 }]));
    assert_eq!(forward_passes(&mut runner), 0, "forward pass");
    let most = max_allocations(runner.blocks().count());
    let count = engine_steps(runner);
    assert!(count <= most, "{count} in {TOKENS} steps of the engine");
}

#[test]
fn decoding_with_streamed_weights_allocates_nothing() {
    let _alone = alone();
    for architecture in ["qwen3_moe", "qwen3"] {
        let (checkpoint, _folder) = checkpoints::random_of(architecture, 6);
        let options = LoadOptions { threads: 2, weights_read_threads: 2, ..Default::default() };
        let weights_memory = WeightsMemory::Bytes(checkpoints::least(&checkpoint, &options));
        let options = LoadOptions { weights_memory, ..options };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        while runner.prepare_weights() {}
        assert_eq!(forward_passes(&mut runner), 0, "{architecture}: forward pass");
        let stats = runner.stream_stats().expect("weights are streamed");
        assert!(stats.read_bytes > (TOKENS * stats.slot_bytes / 8) as u64, "{stats:?}");
        let most = max_allocations(runner.blocks().count());
        let count = engine_steps(runner);
        assert!(count <= most, "{architecture}: {count} in {TOKENS} steps of the engine");
    }
}

/// On no rank: those after the first are threads of this process.
#[test]
fn decoding_over_ranks_allocates_nothing() {
    let _alone = alone();
    for (architecture, slices) in [("llama", 1), ("llama", 2), ("mistral", 1), ("qwen3_5", 1)] {
        let (checkpoint, folder) = checkpoints::random(architecture);
        let options = move |world: Local| LoadOptions {
            threads: 1,
            ranks: Ranks::grid(Arc::new(world), slices, ("", &[])).unwrap(),
            ..LoadOptions::default()
        };
        let [first, second] = Local::group(2).try_into().unwrap();
        let follower = std::thread::spawn(move || {
            let checkpoint = checkpoints::open(folder.path());
            let runner = Runner::load(&checkpoint, &options(second)).unwrap();
            Follower::new(runner).run().unwrap();
        });
        let mut runner = Runner::load(&checkpoint, &options(first)).unwrap();
        while runner.prepare_weights() {}
        assert_eq!(forward_passes(&mut runner), 0, "{architecture}: forward pass");
        let most = max_allocations(runner.blocks().count());
        let count = engine_steps(runner);
        assert!(count <= most, "{architecture}: {count} in {TOKENS} steps of the engine");
        follower.join().unwrap();
    }
}

fn forward_passes(runner: &mut Runner) -> usize {
    let mut session = SingleSequence::new(runner);
    session.feed(&[1, 2, 3], 8).unwrap();
    // Each buffer of messages between ranks is made when it is first used.
    for token in 4..10 {
        session.feed(&[token], 1).unwrap();
    }
    allocations(|| {
        (0..TOKENS as u32).for_each(|token| {
            session.feed(&[token], 1).unwrap();
        })
    })
}

/// Plan, forward pass, sampling with every sampler on, and the event to the reader.
fn engine_steps(runner: Runner) -> usize {
    let (handle, thread) = start(runner, EngineOptions::default());
    let sampling = SamplingParams {
        logit_bias: vec![(3, 1.0)],
        repeat_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        penalty_window: Some(64),
        top_k: 50,
        typical_p: 0.95,
        top_p: 0.95,
        min_p: 0.01,
        temperature: 0.9,
        seed: Some(1),
    };
    // More tokens than are read, so that the engine is not done before, which takes memory too.
    let max_tokens = Some(WARM_UP + TOKENS + AHEAD + 2);
    let request = Request { prompt: vec![1, 2, 3], sampling, max_tokens, ..Request::default() };
    steps_of((handle, thread), request)
}

/// Allocations of the steps that give [`TOKENS`] tokens of a request.
fn steps_of((handle, thread): (EngineHandle, JoinHandle<()>), request: Request) -> usize {
    let mut generation = handle.submit(request).unwrap();
    assert!(matches!(generation.next_blocking(), Some(Event::Admitted { .. })));
    let mut next = || {
        let event = generation.next_blocking();
        assert!(matches!(event, Some(Event::Token { .. })), "{event:?}");
    };
    (0..WARM_UP).for_each(|_| next());
    let count = allocations(|| (0..TOKENS).for_each(|_| next()));
    drop((generation, handle));
    thread.join().unwrap();
    count
}

/// Look-ups in the text, in that of earlier requests and in a prediction, and steps that verify
/// what they found.
#[test]
fn drafting_allocates_nothing() {
    let _alone = alone();
    for architecture in ["llama", "qwen3_5"] {
        let (checkpoint, _folder) = checkpoints::random(architecture);
        let options = EngineOptions { running: 1, ..Default::default() };
        let logit_rows = options.logit_rows();
        let load = LoadOptions { threads: 2, logit_rows, ..LoadOptions::default() };
        let mut runner = Runner::load(&checkpoint, &load).unwrap();
        while runner.prepare_weights() {}
        let most = max_allocations(runner.blocks().count());
        let (handle, thread) = start(runner, options);
        // Of few tokens, so that runs of them come again.
        let sampling = SamplingParams {
            logit_bias: (0..3).map(|id| (id, 100.0)).collect(),
            temperature: 0.5,
            seed: Some(1),
            ..SamplingParams::default()
        };
        let max_tokens = Some(WARM_UP + TOKENS + AHEAD + 2);
        let prediction = [0, 1, 2, 1].repeat(20);
        let prompt = vec![0, 1, 2];
        let request = Request { prompt, sampling, max_tokens, prediction, ..Request::default() };
        let mut before = handle.submit(request.clone()).unwrap();
        while before.next_blocking().is_some() {}
        let metrics = handle.metrics.clone();
        let count = steps_of((handle, thread), request);
        assert!(count <= most, "{architecture}: {count}");
        let stats = metrics.snapshot();
        assert!(stats.drafted() > 0, "{architecture}: {:?}", stats.drafts);
    }
}

/// Sequences that decode together.
const SEQUENCES: usize = 256;

#[test]
fn a_step_of_256_sequences_allocates_nothing() {
    let _alone = alone();
    let (checkpoint, _folder) = checkpoints::random("llama");
    // Drafts would have readers lag as never before.
    let speculate = Speculate::Off;
    let options =
        EngineOptions { running: SEQUENCES, queue: SEQUENCES, speculate, ..Default::default() };
    let load = LoadOptions {
        threads: 2,
        // No block becomes full, since the cache keeps a note of each that does.
        block: 256,
        kv_memory: KvMemory::Bytes(128 << 20),
        logit_rows: options.logit_rows(),
        ..LoadOptions::default()
    };
    let (handle, thread) = start(Runner::load(&checkpoint, &load).unwrap(), options);
    let mut generations: Vec<Generation> = (0..SEQUENCES as u32)
        .map(|id| {
            let (prompt, max_tokens) = (vec![id % 131], Some(254));
            handle.submit(Request { prompt, max_tokens, ..Request::default() }).unwrap()
        })
        .collect();
    let mut read = |events: usize| {
        for _ in 0..events {
            for generation in &mut generations {
                let event = generation.next_blocking();
                assert!(matches!(event, Some(Event::Admitted { .. } | Event::Token { .. })));
            }
        }
    };
    // The channels allocate when a reader lags behind as never before: so they lag first.
    read(10);
    let ahead = AHEAD - MAX_DRAFTED;
    let lagging = (SEQUENCES * (9 + ahead)) as u64;
    while handle.metrics.snapshot().generation_tokens < lagging {
        std::thread::sleep(Duration::from_millis(1));
    }
    read(ahead + 10);
    let before = handle.metrics.snapshot();
    let count = allocations(|| read(80));
    let after = handle.metrics.snapshot();
    assert_eq!(count, 0);
    let tokens = after.generation_tokens - before.generation_tokens;
    let steps = after.steps - before.steps;
    assert!(tokens > steps * SEQUENCES as u64 / 2, "{tokens} tokens in {steps} steps");
    drop((generations, handle));
    thread.join().unwrap();
}
