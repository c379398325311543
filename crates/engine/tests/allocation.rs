//! Decoding allocates nothing. A test program of its own, because it counts the allocations of
//! every thread.
#![allow(unsafe_code)]

#[path = "it/checkpoints.rs"]
mod checkpoints;

use engine::{
    BLOCK, EngineOptions, Event, LoadOptions, Request, Runner, SamplingParams, SingleSequence,
    start,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Tokens decoded while counting.
const TOKENS: usize = 128;

/// One test, because two would count each other.
#[test]
fn decoding_allocates_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0, "the counter counts");
    for architecture in checkpoints::architectures() {
        let (checkpoint, _folder) = checkpoints::random(architecture);
        let options = LoadOptions { threads: 2, ..LoadOptions::default() };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        assert_eq!(forward_passes(&mut runner), 0, "{architecture}: forward pass");
        // The channel to the reader takes a block of 32 events from the allocator whenever the
        // reader lags behind as never before, and the cache a note of each block that becomes full;
        // nothing else may.
        let count = engine_steps(runner);
        assert!(
            count <= TOKENS / 32 + TOKENS / BLOCK,
            "{architecture}: {count} in {TOKENS} steps of the engine"
        );
    }
}

fn forward_passes(runner: &mut Runner) -> usize {
    let mut session = SingleSequence::new(runner);
    session.feed(&[1, 2, 3], 8).unwrap();
    session.feed(&[4], 1).unwrap();
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
    let request =
        Request { prompt: vec![1, 2, 3], sampling, max_tokens: Some(240), ..Request::default() };
    let mut generation = handle.submit(request).unwrap();
    assert!(matches!(generation.next_blocking(), Some(Event::Admitted { .. })));
    let mut next = || assert!(matches!(generation.next_blocking(), Some(Event::Token { .. })));
    (0..64).for_each(|_| next());
    let count = allocations(|| (0..TOKENS).for_each(|_| next()));
    drop((generation, handle));
    thread.join().unwrap();
    count
}
