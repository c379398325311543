//! The server over real sockets, its engine played by a script.

mod chat;
mod completions;
mod errors;
mod harness;
mod lifecycle;
mod llama;
mod models;
mod ollama;
#[path = "../../../api/tests/support/mod.rs"]
mod support;
mod watch;
