//! The functions of the interface, in the form that `cbindgen` reads: `include/gannet.h` is made of
//! this folder.
//!
//! Every function runs its code in `entry!`: pointers are read and written there, by the helpers
//! of `pointers`, and nowhere else in the crate.
//!
//! Invariant: this folder turns pointers into values and back, and decides nothing.

#![allow(unsafe_code, reason = "C passes pointers")]
#![allow(clippy::missing_safety_doc, reason = "callers are C programs, and docs/c.md is for them")]

/// Runs the code of a function of the interface: no panic passes. With a value before the code, the
/// function has that value instead of a status if the code panics.
macro_rules! entry {
    (|$entry:ident| $body:block) => {
        $crate::entry::run(|$entry| $body)
    };
    ($otherwise:expr, $body:block) => {
        $crate::entry::plain($otherwise, || $body)
    };
}

pub mod arrays;
pub mod calls;
pub mod engine;
mod pointers;
pub mod sequences;
pub mod texts;
