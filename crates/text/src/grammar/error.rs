//! Errors of grammars and of their matches.

/// An error of a grammar or of its match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A part of a JSON schema is malformed or not supported.
    #[error("schema at {pointer}: {what}")]
    Schema {
        /// The part, as a JSON pointer in a fragment, such as `#/properties/a`.
        pointer: String,
        /// What was expected and found.
        what: String,
    },
    /// The grammar as a whole cannot be compiled.
    #[error("{kind}: {what}")]
    Source {
        /// The kind of source: `schema`, `regex`, `grammar`, `choice` or `tools`.
        kind: &'static str,
        /// What was expected and found.
        what: String,
    },
    /// The arguments of a tool cannot be enforced.
    #[error("tool {name}: {error}")]
    Tool {
        /// The name of the tool.
        name: String,
        /// The error of its schema.
        error: Box<GrammarError>,
    },
    /// The match of an answer failed.
    #[error("the answer cannot match the grammar: {0}")]
    Match(String),
}
