//! The name under which routes and answers know this protocol.

/// OpenAI's API without the Responses API.
pub(crate) struct OpenAi;
