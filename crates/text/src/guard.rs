//! Keeping users from forging control tokens.
//!
//! Before rendering, every control token's text in the input is put between two marks, characters
//! that no text may contain; after rendering the marks are taken out and what they enclosed is
//! literal text to the tokenizer. A mark also blocks a token from forming across the end of a
//! content string.

use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::ops::Range;

/// Unicode noncharacters, never part of a text.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// A rendered prompt, and where its text came from the user and must not become control tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The rendered text.
    pub text: String,
    /// Byte ranges of the text that no control token may touch, in order.
    pub literals: Vec<Range<usize>>,
}

/// The input with marks around what looks like control tokens.
pub(crate) fn mark(input: &Value, tokenizer: &Tokenizer) -> Value {
    marked(input, false, tokenizer)
}

fn marked(value: &Value, content: bool, tokenizer: &Tokenizer) -> Value {
    match value {
        Value::String(text) => mark_text(text, content, tokenizer).into(),
        Value::Array(items) => items.iter().map(|v| marked(v, content, tokenizer)).collect(),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                let content = content || matches!(key.as_str(), "content" | "text");
                (mark_text(key, false, tokenizer), marked(value, content, tokenizer))
            };
            Value::Object(map.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

fn mark_text(text: &str, content: bool, tokenizer: &Tokenizer) -> String {
    let text = text.replace([OPEN, CLOSE], "");
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for range in tokenizer.special_ranges(&text) {
        if range.start < done {
            continue;
        }
        out.push_str(&text[done..range.start]);
        out.push(OPEN);
        out.push_str(&text[range.clone()]);
        out.push(CLOSE);
        done = range.end;
    }
    out.push_str(&text[done..]);
    if content && tokenizer.ends_like_special(&text) {
        out.push(CLOSE);
    }
    out
}

/// Takes the marks out of a rendered text. A mark without its partner, left over where a
/// template cut a string, still keeps tokens from forming across its place.
pub(crate) fn unmark(rendered: &str) -> Prompt {
    let mut prompt = Prompt { text: String::with_capacity(rendered.len()), ..Prompt::default() };
    let mut open = None;
    for c in rendered.chars() {
        let here = prompt.text.len();
        match c {
            OPEN => open = Some(here),
            CLOSE => {
                let start = open.take().unwrap_or(here);
                prompt.literals.push(start..here);
            }
            c => {
                prompt.text.push(c);
                continue;
            }
        }
        prompt.literals.push(here..here);
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_ranges() {
        let prompt = unmark(&format!("a{OPEN}<s>{CLOSE}b{CLOSE}c{OPEN}d"));
        assert_eq!(prompt.text, "a<s>bcd");
        assert_eq!(prompt.literals, [1..1, 1..4, 4..4, 5..5, 5..5, 6..6]);
    }
}
