//! OpenAI's API: chat completions, text completions and models.
//!
//! Source: OpenAI API reference; fields that vLLM and llama.cpp add are taken in their spelling.

pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod chat_answer;
pub(crate) mod completion_answer;
pub(crate) mod completions;
pub(crate) mod logprobs;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod sampling;
