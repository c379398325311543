//! What clients of llama.cpp's server use besides OpenAI's API: tokens, the template, properties,
//! slots, completions and what is missing in the middle of a text.
//!
//! Source: the README of llama.cpp's server. Where it leaves a choice:
//!
//! - A slot is a place for an answer that is computed at a time. None can be chosen: `id_slot` and
//!   `cache_prompt` change nothing, since every prompt finds what is cached of it.
//! - Sampling that a request leaves open is the model's own.
//! - Samplers that are not built are refused where they are asked for; hints about time and
//!   indentation are passed over.
//! - `n_predict: 0` computes the prompt, and a token that nobody sees.

mod answer;
mod completion;
mod infill;
mod prompt;
mod props;
pub(crate) mod routes;
mod sampling;
mod timings;
mod tokens;
