//! Protection against control tokens in the text of users.
//!
//! Before rendering, the text of every control token in the input is put between two marks,
//! characters that no text may contain. After rendering the marks are removed, and the text between
//! them is literal to the tokenizer. A mark also keeps a token from forming across the end of a
//! content string.

use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::ops::Range;

/// Unicode noncharacters, never part of a text.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';
/// Another noncharacter, which marks a place to be found again in the rendered text.
const POINT: char = '\u{fdd2}';

/// A rendered prompt, and the ranges of it that came from users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The rendered text.
    pub text: String,
    /// Byte ranges of the text that no control token may touch, in order.
    pub literals: Vec<Range<usize>>,
}

impl RenderedPrompt {
    /// Returns the rest from the last of `ends` before the byte `before`. An end in the text of a
    /// user does not count.
    pub(crate) fn behind_last(&self, ends: &[&str], before: usize) -> Option<RenderedPrompt> {
        let head = self.text.get(..before)?;
        let user = |at: usize| self.literals.iter().any(|range| range.contains(&at));
        let last = |end: &&str| head.rmatch_indices(end).map(|(at, _)| at).find(|&at| !user(at));
        let at = ends.iter().filter(|end| !end.is_empty()).filter_map(last).max()?;
        let shifted = |range: &Range<usize>| range.start - at..range.end - at;
        let rest = self.literals.iter().filter(|range| range.start >= at);
        Some(RenderedPrompt {
            text: self.text[at..].to_owned(),
            literals: rest.map(shifted).collect(),
        })
    }
}

/// Returns the input with marks around the texts of control tokens.
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
    let text = text.replace([OPEN, CLOSE, POINT], "");
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

/// Puts a point before the content of the message `at` of marked input, if the content is a text.
pub(crate) fn point(mut marked: Value, at: usize) -> Option<Value> {
    let content = marked.get_mut("messages")?.get_mut(at)?.get_mut("content")?;
    *content = format!("{POINT}{}", content.as_str()?).into();
    Some(marked)
}

/// Returns the place of the only point of a rendered text, in bytes of the text without marks.
pub(crate) fn pointed(rendered: &str) -> Option<usize> {
    let (before, after) = rendered.split_once(POINT)?;
    (!after.contains(POINT)).then(|| unmark(before).text.len())
}

/// Removes the marks of a rendered text. A mark without its partner, which remains if a template
/// cut a string, still keeps tokens from forming across its place.
pub(crate) fn unmark(rendered: &str) -> RenderedPrompt {
    let mut prompt =
        RenderedPrompt { text: String::with_capacity(rendered.len()), ..RenderedPrompt::default() };
    let mut open = None;
    for c in rendered.chars() {
        let here = prompt.text.len();
        match c {
            OPEN => open = Some(here),
            CLOSE => {
                let start = open.take().unwrap_or(here);
                prompt.literals.push(start..here);
            }
            POINT => continue,
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

    #[test]
    fn points_are_found_again_in_the_text_without_marks() {
        let input = serde_json::json!({"messages": [{"content": "a"}, {"content": 1}]});
        assert_eq!(point(input.clone(), 0).unwrap()["messages"][0]["content"], "\u{fdd2}a");
        assert_eq!((point(input.clone(), 1), point(input, 2)), (None, None));
        assert_eq!(pointed(&format!("{OPEN}<s>{CLOSE}b{POINT}c")), Some(4));
        assert_eq!(pointed(&format!("{POINT}b{POINT}")), None);
    }

    #[test]
    fn ends_that_users_wrote_are_none() {
        let prompt = unmark(&format!("a<e>b{OPEN}<e>{CLOSE}c{OPEN}<x>{CLOSE}d"));
        let rest = prompt.behind_last(&["<e>", "<f>"], prompt.text.len()).unwrap();
        assert_eq!(rest.text, "<e>b<e>c<x>d");
        assert_eq!(&rest.text[rest.literals[1].clone()], "<e>");
        assert_eq!(prompt.behind_last(&["<f>"], 3), None);
    }
}
