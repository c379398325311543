//! The grammars of single calls, and by which literals they are found in a text.

pub(crate) mod call;
mod envelope;
pub(crate) mod json;
pub(crate) mod listed;
pub(crate) mod literals;

use crate::output::OutputForm;
use crate::tool_formats::ToolFormat;
use crate::tool_formats::deepseek::DeepSeek;
use crate::tool_formats::dsml::Dsml;
use crate::tool_formats::mistral::Mistral;
use crate::tool_formats::qwen_coder::Coder;
use call::Call;
use listed::Listed;

/// What a literal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiteralRole {
    /// A call, or a block of calls, begins.
    Start,
    /// Likewise, unless a call has broken off, whose rest this may be.
    Implicit,
    /// It belongs to the call before it and is dropped.
    Close,
    /// Likewise, and the turn is over.
    End,
}

/// The literals of a format.
#[derive(Debug)]
pub(crate) struct Syntax {
    pub format: ToolFormat,
    /// In text.
    pub text: &'static [(&'static str, LiteralRole)],
    /// Directly after a call.
    pub after: &'static [(&'static str, LiteralRole)],
    /// What may close the block of a call that is to be the only one, and whether it does so alone.
    pub closing: &'static [(&'static str, bool)],
    /// Calls are found in the middle of text too.
    pub anywhere: bool,
    /// The grammar of what begins with a literal.
    pub open: fn(&str) -> CallReader,
}

use LiteralRole::{Close, End, Implicit, Start};

const DEEPSEEK_TEXT: &[(&str, LiteralRole)] =
    &[("<｜tool▁calls▁begin｜>", Start), ("<｜tool▁call▁begin｜>", Start)];
const DEEPSEEK_AFTER: &[(&str, LiteralRole)] = &[
    ("<｜tool▁calls▁begin｜>", Start),
    ("<｜tool▁call▁begin｜>", Start),
    ("```", Close),
    ("<｜tool▁call▁end｜>", Close),
    ("<｜tool▁calls▁end｜>", End),
];
const DEEPSEEK_CLOSING: &[(&str, bool)] =
    &[("```", false), ("<｜tool▁call▁end｜>", false), ("<｜tool▁calls▁end｜>", true)];
const TOOL_CALL_CLOSING: &[(&str, bool)] = &[("</tool_call>", true)];
const DSML_CLOSING: &[(&str, bool)] = &[
    ("</｜DSML｜tool_calls>", true),
    ("</｜DSML｜function_calls>", true),
    ("</DSML｜tool_calls>", true),
    ("</DSML｜function_calls>", true),
    ("</tool_calls>", true),
    ("</function_calls>", true),
];
const DSML: &[(&str, LiteralRole)] = &[
    ("<｜DSML｜tool_calls", Start),
    ("<｜DSML｜function_calls", Start),
    ("<｜DSML｜invoke", Implicit),
    ("<DSML｜tool_calls", Start),
    ("<DSML｜function_calls", Start),
    ("<DSML｜invoke", Implicit),
    ("<tool_calls", Start),
    ("<function_calls", Start),
];

const SYNTAXES: [Syntax; 7] = [
    Syntax {
        format: ToolFormat::Hermes,
        text: &[("<tool_call>", Start)],
        after: &[("<tool_call>", Start), ("</tool_call>", Close)],
        closing: TOOL_CALL_CLOSING,
        anywhere: true,
        open: |literal| CallReader::Listed(Listed::new(literal, true)),
    },
    Syntax {
        format: ToolFormat::QwenCoder,
        text: &[("<tool_call>", Start), ("<function=", Start)],
        after: &[("<tool_call>", Start), ("<function=", Start), ("</tool_call>", Close)],
        closing: TOOL_CALL_CLOSING,
        anywhere: true,
        open: |literal| CallReader::Coder(Coder::new(literal)),
    },
    Syntax {
        format: ToolFormat::Llama,
        text: &[("<|python_tag|>", Start), ("{", Start), ("[", Start)],
        after: &[("<|python_tag|>", Start), ("{", Start), (";", Close), (",", Close), ("]", Close)],
        closing: &[],
        anywhere: false,
        open: |literal| CallReader::Listed(Listed::new(literal, false)),
    },
    Syntax {
        format: ToolFormat::Mistral,
        text: &[("[TOOL_CALLS]", Start)],
        after: &[("[TOOL_CALLS]", Start), ("{", Start), (",", Close), ("]", Close)],
        closing: &[("]", true)],
        anywhere: true,
        open: |literal| CallReader::Mistral(Mistral::new(literal)),
    },
    Syntax {
        format: ToolFormat::DeepSeekV3,
        text: DEEPSEEK_TEXT,
        after: DEEPSEEK_AFTER,
        closing: DEEPSEEK_CLOSING,
        anywhere: true,
        open: |literal| CallReader::DeepSeek(DeepSeek::new(true, literal)),
    },
    Syntax {
        format: ToolFormat::DeepSeekV31,
        text: DEEPSEEK_TEXT,
        after: DEEPSEEK_AFTER,
        closing: DEEPSEEK_CLOSING,
        anywhere: true,
        open: |literal| CallReader::DeepSeek(DeepSeek::new(false, literal)),
    },
    Syntax {
        format: ToolFormat::Dsml,
        text: DSML,
        after: DSML,
        closing: DSML_CLOSING,
        anywhere: true,
        open: |literal| CallReader::Dsml(Dsml::new(literal)),
    },
];

/// What a grammar says of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It belongs to the call.
    More,
    /// It ends the call.
    Over,
    /// It ends the turn.
    Complete,
    /// It cannot follow: what was read since the last whole call is text.
    Refused,
}

impl From<Result<bool, json::NotJson>> for Flow {
    fn from(whole: Result<bool, json::NotJson>) -> Self {
        match whole {
            Ok(true) => Flow::Over,
            Ok(false) => Flow::More,
            Err(_) => Flow::Refused,
        }
    }
}

/// The reading of one call, or of one block of them.
#[derive(Clone, Debug)]
pub(crate) enum CallReader {
    Listed(Listed),
    Coder(Coder),
    Mistral(Mistral),
    DeepSeek(DeepSeek),
    Dsml(Dsml),
}

impl Syntax {
    /// The literals that `form` asks to look for, if it does.
    pub fn of(form: &OutputForm) -> Option<&'static Self> {
        let syntax = SYNTAXES.iter().find(|syntax| Some(syntax.format) == form.format)?;
        (!form.tools.is_empty()).then_some(syntax)
    }
}

impl CallReader {
    pub fn push(&mut self, c: char, call: &mut Call) -> Flow {
        match self {
            CallReader::Listed(reader) => reader.push(c, call),
            CallReader::Coder(reader) => reader.push(c, call),
            CallReader::Mistral(reader) => reader.push(c, call),
            CallReader::DeepSeek(reader) => reader.push(c, call),
            CallReader::Dsml(reader) => reader.push(c, call),
        }
    }

    /// The end of the answer: whether what was read since the last whole call is a call, or the
    /// rest of a block that has had one.
    pub fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        match self {
            CallReader::Listed(reader) => reader.finish(call),
            CallReader::Mistral(reader) => reader.finish(call),
            CallReader::Dsml(reader) => reader.finish(truncated, call),
            CallReader::Coder(_) | CallReader::DeepSeek(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_literal_hides_another() {
        for syntax in &SYNTAXES {
            let literals: Vec<&str> = syntax.after.iter().chain(syntax.text).map(|l| l.0).collect();
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
