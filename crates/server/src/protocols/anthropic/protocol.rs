//! The name under which routes and answers know this protocol.

/// Anthropic's Messages API.
pub(crate) struct Anthropic;
