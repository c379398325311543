//! Protection against control tokens in the text of users.
//!
//! Before rendering, the text of every control token in the input is put between two marks,
//! characters that no text may contain. After rendering the marks are removed, and the text between
//! them is literal to the tokenizer. A mark also keeps a token from forming across the end of a
//! content string.

use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::ops::{Range, RangeInclusive};

/// Unicode noncharacters, never part of a text.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';
/// The other noncharacters of this block, which mark places to be found again in the rendered text.
const POINTS: RangeInclusive<char> = '\u{fdd2}'..='\u{fdef}';
/// Most points of one rendering.
pub const MAX_POINTS: usize = 30;

/// A rendered prompt with the places of points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PointedPrompt {
    /// The prompt, without the points.
    pub prompt: RenderedPrompt,
    /// The place of each point in bytes of the text; `None` for a point that the text does not hold
    /// exactly once.
    pub places: Vec<Option<usize>>,
}

/// A rendered prompt, and the ranges of it that came from users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The rendered text.
    pub text: String,
    /// Byte ranges of the text that no control token may touch, in order.
    pub literals: Vec<Range<usize>>,
}

impl RenderedPrompt {
    /// Returns the place of the last of `ends` before the byte `before`. An end in the text of a
    /// user does not count.
    pub fn last_end(&self, ends: &[&str], before: usize) -> Option<usize> {
        let head = self.text.get(..before)?;
        let user = |at: usize| self.literals.iter().any(|range| range.contains(&at));
        let last = |end: &&str| head.rmatch_indices(end).map(|(at, _)| at).find(|&at| !user(at));
        ends.iter().filter(|end| !end.is_empty()).filter_map(last).max()
    }

    /// Returns a part of the prompt, from and to a boundary of characters.
    ///
    /// # Panics
    /// If the range is not within the text or cuts a character.
    pub fn part(&self, of: Range<usize>) -> RenderedPrompt {
        let inside = self.literals.iter().filter(|it| it.start >= of.start && it.end <= of.end);
        let shifted = |it: &Range<usize>| it.start - of.start..it.end - of.start;
        let literals = inside.map(shifted).collect();
        RenderedPrompt { text: self.text[of].to_owned(), literals }
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
    let text = text.replace(|c| matches!(c, OPEN | CLOSE) || POINTS.contains(&c), "");
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

/// Puts the point `number` before the first character of the content of the message `at` of marked
/// input, if the content is a text that is not blank.
pub(crate) fn point(marked: &mut Value, number: usize, at: usize) {
    let message = marked.get_mut("messages").and_then(|messages| messages.get_mut(at));
    let Some(content) = message.and_then(|message| message.get_mut("content")) else { return };
    let Some(text) = content.as_str().filter(|text| !text.trim().is_empty()) else { return };
    let Some(point) = POINTS.clone().nth(number) else { return };
    // Templates that trim a content drop the white space, not the point.
    let (before, behind) = text.split_at(text.len() - text.trim_start().len());
    *content = format!("{before}{point}{behind}").into();
}

/// Removes the marks of a rendered text with `count` points, whose places are kept.
pub(crate) fn unpoint(rendered: &str, count: usize) -> PointedPrompt {
    let mut places = vec![Vec::new(); count];
    let prompt = unmark_with(rendered, |point, place| {
        let number = POINTS.clone().position(|it| it == point);
        if let Some(places) = number.and_then(|number| places.get_mut(number)) {
            places.push(place);
        }
    });
    let single = |places: Vec<usize>| (places.len() == 1).then(|| places[0]);
    PointedPrompt { prompt, places: places.into_iter().map(single).collect() }
}

/// Removes the marks of a rendered text. A mark without its partner, which remains if a template
/// cut a string, still keeps tokens from forming across its place.
pub(crate) fn unmark(rendered: &str) -> RenderedPrompt {
    unmark_with(rendered, |_, _| {})
}

fn unmark_with(rendered: &str, mut found: impl FnMut(char, usize)) -> RenderedPrompt {
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
            point if POINTS.contains(&point) => {
                found(point, here);
                continue;
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

    #[test]
    fn points_are_found_again_in_the_text_without_marks() {
        let input = serde_json::json!({"messages": [{"content": " a "}, {"content": 1}]});
        let pointed = |at| {
            let mut input = input.clone();
            point(&mut input, 1, at);
            input["messages"][at]["content"].clone()
        };
        assert_eq!(pointed(0), " \u{fdd3}a ");
        assert_eq!((pointed(1), pointed(2)), (1.into(), Value::Null));
        let [first, second] = ['\u{fdd2}', '\u{fdd3}'];
        let found = unpoint(&format!("{OPEN}<s>{CLOSE}b{second}c{first}d{first}"), 3);
        assert_eq!(found.prompt.text, "<s>bcd");
        assert_eq!(found.places, [None, Some(4), None]);
        assert_eq!(POINTS.count(), MAX_POINTS);
    }

    #[test]
    fn ends_that_users_wrote_are_none() {
        let prompt = unmark(&format!("a<e>b{OPEN}<e>{CLOSE}c{OPEN}<x>{CLOSE}d"));
        let end = prompt.last_end(&["<e>", "<f>"], prompt.text.len()).unwrap();
        let rest = prompt.part(end..prompt.text.len());
        assert_eq!(rest.text, "<e>b<e>c<x>d");
        assert_eq!(&rest.text[rest.literals[1].clone()], "<e>");
        assert_eq!(prompt.last_end(&["<f>"], 3), None);
    }
}
