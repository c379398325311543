//! The server over real sockets, its engine played by a script.

mod anthropic;
mod chat;
mod completions;
mod errors;
mod harness;
mod lifecycle;
mod models;
#[path = "../../../api/tests/support/mod.rs"]
mod support;
mod watch;
