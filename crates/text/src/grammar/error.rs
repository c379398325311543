//! Why a grammar is refused, or a match broke.

/// What is wrong with a grammar, or what became of its match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A part of a JSON schema that cannot be honoured.
    #[error("schema at {pointer}: {what}")]
    Schema {
        /// Where, as a JSON pointer in a fragment, such as `#/properties/a`.
        pointer: String,
        /// What was expected and found.
        what: String,
    },
    /// The grammar as a whole cannot be compiled.
    #[error("{kind}: {what}")]
    Source {
        /// What it is: `schema`, `regex`, `grammar`, `choice` or `tools`.
        kind: &'static str,
        /// What was expected and found.
        what: String,
    },
    /// The match of an answer cannot go on.
    #[error("the grammar cannot be followed: {0}")]
    Match(String),
}
