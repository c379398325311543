//! Decoding allocates nothing. A test program of its own, because it counts the allocations of
//! every thread.
#![allow(unsafe_code)]

#[path = "it/checkpoints.rs"]
mod checkpoints;

use engine::{EngineOptions, Event, LoadOptions, Request, Runner, SamplingParams, start};
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

/// Plan, forward pass, sampling with every sampler on, and the event to the reader.
#[test]
fn decoding_allocates_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0, "the counter counts");
    for architecture in checkpoints::ARCHITECTURES {
        let (checkpoint, _folder) = checkpoints::random(architecture);
        let options = LoadOptions { threads: 2, ..LoadOptions::default() };
        let runner = Runner::load(&checkpoint, &options).unwrap();
        let (handle, thread) = start(runner, EngineOptions::default());
        let sampling = SamplingParams {
            logit_bias: vec![(3, 1.0)],
            repeat_penalty: 1.1,
            presence_penalty: 0.1,
            frequency_penalty: 0.1,
            top_k: 50,
            typical_p: 0.95,
            top_p: 0.95,
            min_p: 0.01,
            temperature: 0.9,
            seed: Some(1),
            penalty_window: Some(64),
        };
        let request = Request {
            prompt: vec![1, 2, 3],
            sampling,
            max_tokens: Some(240),
            ..Request::default()
        };
        let mut generation = handle.submit(request).unwrap();
        let mut next = || assert!(matches!(generation.next_blocking(), Some(Event::Token { .. })));
        (0..64).for_each(|_| next());
        assert_eq!(allocations(|| (0..128).for_each(|_| next())), 0, "{architecture}");
        drop((generation, handle));
        thread.join().unwrap();
    }
}
