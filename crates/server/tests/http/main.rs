//! The server over real sockets, its engine played by a script.

mod anthropic;
mod chat;
mod chat_tools;
mod completions;
mod corpus;
mod document;
mod embeddings;
mod errors;
mod harness;
mod keys;
mod lifecycle;
mod limits;
mod llama;
mod models;
mod ollama;
mod responses;
#[path = "../../../api/tests/support/mod.rs"]
mod support;
mod transport;
mod watch;
mod web;
