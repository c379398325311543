//! What a tool says when it cannot do what the model asked for.

use std::fmt::Display;

/// A text for the model: it names the path, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(String);

impl ToolError {
    /// An error with a text for the model.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An error of the operating system, after what could not be done: `cannot read a.txt`.
    pub(crate) fn system(what: impl Display, source: impl Display) -> Self {
        Self(format!("{what}: {source}"))
    }
}
