//! The name under which routes and answers know this protocol.

/// Ollama's API.
pub(crate) struct Ollama;
