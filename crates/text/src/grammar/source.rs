//! What a caller wants an answer to look like.

use serde_json::Value;

/// The form of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSource {
    /// JSON that is valid against this schema.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// Text that this regular expression matches from its beginning to its end.
    Regex(String),
    /// Text of this grammar, in the Lark dialect of llguidance, from the rule `start`.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
}

/// Whether reasoning comes before the answer that a grammar is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// It does not.
    #[default]
    None,
    /// The answer may begin with `<think>`, free text and `</think>`.
    Possible,
    /// The prompt ended with `<think>`: free text comes first, until `</think>`.
    Open,
}
