//! What a caller wants an answer to look like.

use crate::output::ToolSignature;
use crate::tool_formats::ToolFormat;
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
    /// Calls of tools in the syntax of a family of models.
    Calls(CallGrammar),
}

/// Calls of tools. Arguments are held to the schemas of their tools; a schema that cannot be
/// honoured is an error, so that who does not insist on it leaves it out (`Value::Null`: any object,
/// or any parameters where they are written one by one, as texts).
#[derive(Clone, Debug, PartialEq)]
pub struct CallGrammar {
    /// How the model writes a call.
    pub format: ToolFormat,
    /// Tools that may be called.
    pub tools: Vec<ToolSignature>,
    /// At least one call, and no text but reasoning before it. Otherwise text is free until a call
    /// begins, which is then held to its tool and ends the answer.
    pub required: bool,
    /// More than one call may follow each other, where the format has a way to write them.
    pub parallel: bool,
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
    /// The answer is a message of the channel `final`, and those of others may stand before it.
    Channels,
}
