//! Whatever a model wants, under a grammar its answer has the form that was asked for.

mod answers;
mod calls;
mod hostile;
mod player;

#[path = "../common/mod.rs"]
mod common;
