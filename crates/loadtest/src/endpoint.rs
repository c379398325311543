//! The kinds of requests.

use serde::Serialize;

/// The kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Endpoint {
    /// Completions of token ids
    Completions,
    /// Chats of about one word per token
    Chat,
}

impl Endpoint {
    /// The path below `/v1`.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat/completions",
        }
    }
}
