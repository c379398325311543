//! How a family of models writes tool calls.

use super::dsml_structure::CallStructure;
use super::syntax::CallSyntax;
use crate::call_reader::{CallReader, LiteralRole};
use crate::think::{Reasoning, ThinkTags};
use std::fmt;

/// How a family of models writes tool calls. Formats are equal if their names are.
pub struct ToolFormat {
    /// The name that options and [`FromStr`](std::str::FromStr) use.
    pub name: &'static str,
    /// Whether the source of a chat template shows the format: templates render earlier calls as
    /// the model writes new ones.
    pub(crate) detect: fn(&str) -> bool,
    /// Texts that the reader must be shown where they are special tokens of the vocabulary.
    pub markers: &'static [&'static str],
    /// Literals that begin and end calls, and what they do. Without any, the reader reads the
    /// whole answer: reasoning, content and calls.
    pub(crate) literals: &'static [(&'static str, LiteralRole)],
    /// Literals that may close the block of the only call, and whether each does so alone.
    pub(crate) closing: &'static [(&'static str, bool)],
    /// Whether calls are found in the middle of text too.
    pub(crate) anywhere: bool,
    /// Tags around reasoning.
    pub(crate) thinking: ThinkTags,
    /// How grammars write calls.
    pub(crate) writes: CallSyntax,
    /// Makes the reader of what begins with a literal.
    pub(crate) reader: fn(&str) -> Box<dyn CallReader>,
    /// Makes the tracker of markup, in formats where models shall not choose it freely.
    pub(crate) structure: Option<fn(Reasoning) -> CallStructure>,
    /// Finds in the source of a chat template the suffix of the names of tags, in formats that have
    /// one.
    pub(crate) suffix: Option<fn(&str) -> Option<&str>>,
}

impl ToolFormat {
    /// The tracker of the markup of calls in an answer, if the format has one.
    pub fn structure(&self, reasoning: Reasoning) -> Option<CallStructure> {
        self.structure.map(|track| track(reasoning))
    }

    /// The tags that open and close reasoning.
    pub fn reasoning_tags(&self) -> [&'static str; 2] {
        self.thinking[0]
    }

    /// Whether an answer is several messages, which the format reads as a whole: reasoning, content
    /// and calls.
    pub fn reads_answers(&self) -> bool {
        self.literals.is_empty()
    }
}

impl PartialEq for ToolFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ToolFormat {}

impl fmt::Debug for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for ToolFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}
