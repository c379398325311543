//! Constraints as callers write them. They serialise, so that records of requests can hold them.

use crate::call_reader::call::ToolSignature;
use crate::tool_formats::ToolFormat;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// A constraint on an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrammarSource {
    /// JSON that is valid against this schema, in full.
    JsonSchema(Value),
    /// JSON that is valid against this schema, without the parts of it that cannot be enforced.
    LooseSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// Text that this regular expression matches from its beginning to its end.
    Regex(String),
    /// Text of this grammar, in the Lark dialect of llguidance, from the rule `start`.
    Lark(String),
    /// Text of this grammar in GBNF, the notation of llama.cpp, from the rule `root`.
    Gbnf(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of tools in the syntax of a family of models.
    Calls(CallGrammar),
}

impl GrammarSource {
    /// A grammar in either notation: GBNF writes `::=` after the name of a rule, which Lark never
    /// has.
    pub fn of_grammar(text: String) -> Self {
        if is_gbnf(&text) { Self::Gbnf(text) } else { Self::Lark(text) }
    }
}

/// Calls of tools. Arguments match the schemas of their tools; a schema that is not supported is an
/// error. `Value::Null` as schema allows any object, or any strings if the format writes arguments
/// one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallGrammar {
    /// How the model writes a call.
    #[serde(serialize_with = "format_name", deserialize_with = "format_named")]
    pub format: &'static ToolFormat,
    /// Tools that may be called.
    pub tools: Vec<ToolSignature>,
    /// Whether the answer is at least one call, with no text but reasoning before it. Otherwise
    /// text is free until a call begins, which must match its tool and ends the answer; with
    /// `answer`, it is calls without text or that answer.
    pub required: bool,
    /// Whether several calls may follow each other, if the format can write them.
    pub parallel: bool,
    /// What the answer is if it is not calls; `None` if it is free text. Nothing if calls are
    /// required.
    pub answer: Option<Box<GrammarSource>>,
}

/// The reasoning before the part of an answer that a grammar constrains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// None.
    #[default]
    None,
    /// The answer may begin with `<think>`, free text and `</think>`.
    Possible,
    /// The prompt ended with `<think>`: free text comes first, until `</think>`.
    Open,
    /// The answer is a message of the channel `final`, after messages of other channels.
    Channels,
}

/// Returns whether a grammar is one in GBNF, not in Lark: GBNF writes `::=`, which Lark never has
/// outside of literals and comments.
fn is_gbnf(text: &str) -> bool {
    let outside = |line: &str| {
        let name = line
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
        name.trim_start().starts_with("::=")
    };
    text.lines().any(outside)
}

fn format_name<S: Serializer>(format: &ToolFormat, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(format.name)
}

fn format_named<'de, D: Deserializer<'de>>(from: D) -> Result<&'static ToolFormat, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}
