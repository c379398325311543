//! Under a grammar, the answer of any model has the requested form.

mod answers;
mod calls;
mod gbnf;
mod hostile;
mod player;

#[path = "../common/mod.rs"]
mod common;
