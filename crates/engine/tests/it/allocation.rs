//! The decode loop allocates nothing: counted, for this whole test program.
#![allow(unsafe_code)]

use crate::checkpoints::random;
use engine::{LoadOptions, Runner, Session};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
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
    let before = ALLOCATIONS.with(Cell::get);
    run();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

/// One thread, so that everything a step does happens on the counted one.
#[test]
fn decoding_allocates_nothing() {
    for architecture in crate::checkpoints::ARCHITECTURES {
        let (checkpoint, _folder) = random(architecture);
        let options = LoadOptions { threads: 1, ..LoadOptions::default() };
        let mut runner = Runner::load(&checkpoint, &options).unwrap();
        let mut session = Session::new(&mut runner);
        session.feed(&[1, 2, 3], 8).unwrap();
        session.feed(&[4], 1).unwrap();
        let count = allocations(|| {
            for token in 0..100 {
                session.feed(&[token], 1).unwrap();
            }
        });
        assert_eq!(count, 0, "{architecture}");
    }
}
