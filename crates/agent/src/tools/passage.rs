//! Where a passage occurs in a text: as it is, with a part left out, or with other white space.

use crate::error::ToolError;
use crate::interrupt::Interrupt;
use crate::text_file::{lines, with_short_ends, without_end};
use memchr::memmem;
use std::ops::Range;

/// The line that stands for all lines between the head and the tail of a passage.
pub(crate) const UP_TO: &str = "[upto]";

/// Places at which a search ends: more are as wrong as these.
pub(crate) const MAX_PLACES: usize = 100;

/// Steps of a search between two looks whether the call is cancelled.
const STEPS: usize = 1 << 12;

/// Ends a search where its call is cancelled.
#[derive(Clone, Copy)]
pub(crate) struct Stops<'a>(pub &'a Interrupt);

impl Stops<'_> {
    fn check(self, step: usize) -> Result<(), ToolError> {
        match step.is_multiple_of(STEPS) && self.0.is_cancelled() {
            true => Err(ToolError::new("interrupted")),
            false => Ok(()),
        }
    }
}

/// A text with short line ends, which remembers where the long ones were.
pub(crate) struct Normal {
    pub bytes: Vec<u8>,
    /// Places of line breaks that were `\r\n`.
    long: Vec<usize>,
}

impl Normal {
    /// The text of `body`.
    pub fn of(body: &[u8]) -> Self {
        let ends = body.windows(2).enumerate().filter(|(_, pair)| *pair == b"\r\n");
        // Each of the earlier ones is one byte shorter now.
        let long = ends.enumerate().map(|(earlier, (at, _))| at - earlier).collect();
        Self { bytes: with_short_ends(body), long }
    }

    /// The place in the original text of the place `at`.
    pub fn original(&self, at: usize) -> usize {
        at + self.long.partition_point(|end| *end < at)
    }

    /// The number of the line, from 1, of the place `at`.
    pub fn line(&self, at: usize) -> usize {
        1 + self.bytes[..at].iter().filter(|byte| **byte == b'\n').count()
    }
}

/// What is looked for: a text, or a head and a tail.
pub(crate) struct Passage {
    head: Vec<u8>,
    tail: Option<Vec<u8>>,
}

impl Passage {
    /// The passage `old`, with short line ends.
    ///
    /// # Errors
    ///
    /// If there is nothing to look for, or nothing before or after the line `[upto]`.
    pub fn parse(old: &[u8]) -> Result<Self, ToolError> {
        if is_blank(old) {
            return Err(ToolError::new("old has no text; expected a passage of the file"));
        }
        let all = lines(old);
        let mut marks = (0..all.len()).filter(|at| all[*at].trim_ascii() == UP_TO.as_bytes());
        let Some(mark) = marks.next() else { return Ok(Self::plain(old)) };
        let (head, tail) = (all[..mark].concat(), all[mark + 1..].concat());
        match marks.next() {
            Some(_) => Err(ToolError::new(format!("old has more than one line {UP_TO}"))),
            None if is_blank(&head) || is_blank(&tail) => {
                Err(ToolError::new(format!("old needs text before and after the line {UP_TO}")))
            }
            None => Ok(Self { head, tail: Some(tail) }),
        }
    }

    /// The passage that is `old` as it is.
    pub fn plain(old: &[u8]) -> Self {
        Self { head: old.to_owned(), tail: None }
    }

    /// Whether a part is left out.
    pub fn is_joined(&self) -> bool {
        self.tail.is_some()
    }

    /// The part that does not occur, and the place in `text` from which on it may: the tail after
    /// the first head, if there is one.
    pub fn missing_part(&self, text: &Normal) -> (usize, &[u8]) {
        let head = memmem::find(&text.bytes, &self.head);
        match (&self.tail, head) {
            (Some(tail), Some(at)) => (at + self.head.len(), tail),
            _ => (0, &self.head),
        }
    }

    /// The places where it occurs as it is.
    ///
    /// # Errors
    ///
    /// If the call is cancelled meanwhile.
    pub fn exact(&self, text: &Normal, stops: Stops<'_>) -> Result<Vec<Range<usize>>, ToolError> {
        let mut heads = Vec::new();
        for place in occurrences(&text.bytes, &self.head).take(MAX_PLACES) {
            stops.check(0)?;
            heads.push(place);
        }
        let Some(tail) = self.tail.as_ref() else { return Ok(heads) };
        let mut tails = Vec::new();
        for place in occurrences(&text.bytes, tail) {
            stops.check(0)?;
            tails.extend(Some(place).filter(|it| is_line_start(&text.bytes, it.start)));
        }
        Ok(joined(heads, Some(tails)))
    }

    /// The places of whole lines where it occurs with other white space.
    ///
    /// # Errors
    ///
    /// If the call is cancelled meanwhile.
    pub fn loose(&self, text: &Normal, stops: Stops<'_>) -> Result<Vec<Range<usize>>, ToolError> {
        let all = LooseLine::all(&text.bytes);
        let tail = self.tail.as_ref().map(|tail| loose_places(&all, tail, stops)).transpose()?;
        let mut heads = loose_places(&all, &self.head, stops)?;
        heads.truncate(MAX_PLACES);
        Ok(joined(heads, tail))
    }
}

/// Each head with each tail after it.
fn joined(heads: Vec<Range<usize>>, tails: Option<Vec<Range<usize>>>) -> Vec<Range<usize>> {
    let Some(tails) = tails else { return heads };
    let pairs = heads.iter().flat_map(|head| {
        let after = &tails[tails.partition_point(|tail| tail.start < head.end)..];
        after.iter().map(|tail| head.start..tail.end)
    });
    pairs.take(MAX_PLACES).collect()
}

/// All places of `part`, also where they overlap.
fn occurrences<'a>(text: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
    let (finder, mut from) = (memmem::Finder::new(part), 0);
    std::iter::from_fn(move || {
        let at = from + finder.find(text.get(from..)?)?;
        from = at + 1;
        Some(at..at + part.len())
    })
}

fn is_line_start(text: &[u8], at: usize) -> bool {
    at == 0 || text[at - 1] == b'\n'
}

fn is_blank(text: &[u8]) -> bool {
    text.trim_ascii().is_empty()
}

/// A line as it is compared without regard to white space.
struct LooseLine {
    key: Vec<u8>,
    start: usize,
    /// The end of its text, and the end with the line end.
    text_end: usize,
    end: usize,
}

impl LooseLine {
    fn all(text: &[u8]) -> Vec<Self> {
        let mut end = 0;
        let line = |line: &&[u8]| {
            let start = end;
            end += line.len();
            Self { key: key(line), start, text_end: start + without_end(line).len(), end }
        };
        lines(text).iter().map(line).collect()
    }
}

/// The words of a line, with one space between them.
fn key(line: &[u8]) -> Vec<u8> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

fn loose_places(
    all: &[LooseLine],
    part: &[u8],
    stops: Stops<'_>,
) -> Result<Vec<Range<usize>>, ToolError> {
    let keys: Vec<Vec<u8>> = lines(part).iter().map(|line| key(line)).collect();
    let takes_end = part.ends_with(b"\n");
    let mut places = Vec::new();
    for (step, window) in all.windows(keys.len()).enumerate() {
        stops.check(step)?;
        if window.iter().map(|line| &line.key).eq(&keys) {
            let (first, last) = (&window[0], &window[window.len() - 1]);
            places.push(first.start..if takes_end { last.end } else { last.text_end });
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_where_its_call_is_cancelled() {
        let (text, interrupt) = (Normal::of(b"a\nb\n"), Interrupt::default());
        let passage = Passage::parse(b"a\n[upto]\nb\n").unwrap();
        let stops = Stops(&interrupt);
        interrupt.start(1);
        for found in [passage.exact(&text, stops), passage.loose(&text, stops)] {
            assert_eq!(found.unwrap().first(), Some(&(0..4)));
        }
        interrupt.cancel(1);
        for found in [passage.exact(&text, stops), passage.loose(&text, stops)] {
            assert_eq!(found.unwrap_err().to_string(), "interrupted");
        }
    }
}
