//! The name under which routes and answers know this protocol.

/// OpenAI's Responses API.
pub(crate) struct Responses;
