//! Evaluations of language models.
//!
//! [`statistics`] says what scores of items show of a model, and what those of two models show of
//! their difference.
//!
//! [`PythonRandom`] chooses as lm-evaluation-harness does.
//!
//! Invariant: the same scores and the same seed give the same numbers on every machine.

mod python_random;
pub mod statistics;

pub use python_random::PythonRandom;
