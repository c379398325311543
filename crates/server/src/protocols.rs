//! The protocols: one module for each, which reads its requests and writes its answers.

pub(crate) mod anthropic;
pub(crate) mod llama;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod responses;
