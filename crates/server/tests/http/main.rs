//! The server over real sockets, its engine played by a script.

mod added_items;
mod anthropic;
mod bodies;
mod cache_reports;
mod chat;
mod chat_tools;
mod compact;
mod completions;
mod conversations;
mod corpus;
mod deepseek_v4;
mod document;
mod embeddings;
mod errors;
#[allow(dead_code, reason = "other tests need the rest")]
#[path = "../../../api/tests/api/families/family.rs"]
mod family;
mod harness;
mod isolation;
mod keys;
mod lifecycle;
mod limits;
mod llama;
mod llama_clients;
mod long_prompts;
mod many_models;
mod models;
mod observability;
mod ollama;
mod other_sites;
mod ranking;
mod rendered;
mod responses;
#[path = "../../../api/tests/api/support/mod.rs"]
mod support;
mod templates;
mod transport;
mod unenforced;
mod web;
mod websocket;
