//! Memory that is kept from call to call, so that a step allocates nothing.

use base::AlignedVec;
use std::cell::RefCell;

/// The first `len` values of `all`, which grows if there are too few.
pub(super) fn grown<T: bytemuck::Pod>(all: &mut AlignedVec<T>, len: usize) -> &mut [T] {
    if all.len() < len {
        *all = AlignedVec::zeroed(len.next_power_of_two());
    }
    &mut all[..len]
}

/// Lends `len` values that the thread keeps for its next call.
pub(super) fn scratch(len: usize, f: impl FnOnce(&mut [f32])) {
    thread_local! {
        static SCRATCH: RefCell<AlignedVec<f32>> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|values| f(grown(values, len)));
}
