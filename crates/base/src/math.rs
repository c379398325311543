//! Transcendental functions with the same bits on every system.
//!
//! The methods of `f32` and `f64` call the platform's library, whose results differ in the last
//! digits from system to system and from version to version. These functions are of the crate
//! `libm`, which is Rust alone. Whatever reaches a logit, a token or a printed number uses them, or
//! kernels' own over lanes; values of f32 are computed in f64 and rounded once.

pub use libm::{cos, exp, exp2, log as ln, pow, sincos as sin_cos, tanh};
