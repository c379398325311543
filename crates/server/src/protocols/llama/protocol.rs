//! The name under which routes and answers know this protocol.

/// The routes of llama.cpp's server that are not OpenAI's.
pub(crate) struct Llama;
