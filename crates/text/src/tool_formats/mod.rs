//! Tool-call formats: how families of models write tool calls.
//!
//! A format is one file with a static [`ToolFormat`], and one entry of [`ToolFormat::ALL`]. The
//! file has the markers, the reader and the syntax for grammars; `docs/add-a-tool-call-format.md`
//! says how to add one.

pub mod deepseek;
pub mod dsml;
pub mod harmony;
pub mod hermes;
pub mod llama;
pub mod mistral;
pub mod qwen_coder;
pub(crate) mod syntax;
mod written;

use crate::call_reader::{CallReader, LiteralRole};
use crate::think::{Reasoning, ThinkTags};
use dsml::CallStructure;
use std::fmt;
use std::str::FromStr;
use syntax::CallSyntax;

/// How a family of models writes tool calls. Formats are equal if their names are.
pub struct ToolFormat {
    /// The name that options and [`FromStr`] use.
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
}

impl ToolFormat {
    /// Every format, in the order of detection: the first one that a template shows is its format.
    pub const ALL: &[&Self] = &[
        &harmony::HARMONY,
        &dsml::DSML,
        &deepseek::DEEPSEEK_V31,
        &deepseek::DEEPSEEK_V3,
        &mistral::MISTRAL,
        &llama::LLAMA,
        &qwen_coder::QWEN_CODER,
        &hermes::HERMES,
    ];

    /// Returns the format that the source of a chat template shows, if it shows one.
    pub fn detect(template: &str) -> Option<&'static Self> {
        Self::ALL.iter().copied().find(|format| (format.detect)(template))
    }

    /// Returns the names of all formats, the most common ones first: they are detected last.
    pub fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().rev().map(|format| format.name).collect();
        names.join(", ")
    }

    /// The tracker of the markup of calls in an answer, if the format has one.
    pub fn structure(&self, reasoning: Reasoning) -> Option<CallStructure> {
        self.structure.map(|track| track(reasoning))
    }

    /// Whether the reader reads whole answers: reasoning, content and calls.
    pub(crate) fn reads_answers(&self) -> bool {
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

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool format \"{found}\" (known: {known})")]
pub struct UnknownFormat {
    found: String,
    known: String,
}

impl FromStr for &'static ToolFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = ToolFormat::ALL.iter().copied().find(|format| format.name == name);
        let unknown = || UnknownFormat { found: name.to_owned(), known: ToolFormat::names() };
        found.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_literal_hides_another() {
        for format in ToolFormat::ALL {
            let literals: Vec<&str> = format.literals.iter().map(|literal| literal.0).collect();
            for (literal, other) in
                literals.iter().flat_map(|l| literals.iter().map(move |o| (l, o)))
            {
                assert!(literal == other || !other.starts_with(literal), "{literal} {other}");
                let rest = literal.trim_start_matches('`').chars().skip(1);
                let first = other.chars().next();
                let inner = rest.filter(|c| Some(*c) == first && literal.len() > 1);
                assert!(inner.count() == 0 || first == Some(']'), "{literal} {other}");
            }
        }
    }
}
