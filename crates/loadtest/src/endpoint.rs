//! The kinds of requests.

/// The kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Continuations of token ids.
    Completions,
    /// Answers to a message of words.
    Chat,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Completions, Self::Chat];

    /// The name in arguments and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat",
        }
    }

    /// The path below `/v1`.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat/completions",
        }
    }
}
