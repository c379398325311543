//! Splitting of reasoning and content while the text streams in.
//!
//! Reasoning is at the start of an answer between an opening and a closing tag; everything else is
//! content, and a tag inside content is content. Text that may be the start of a tag is held back
//! until it is known; the tags and the white space around them are dropped.

use crate::call_reader::literals::{Literals, Scan};

/// Where reasoning between tags can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Nowhere: everything is content.
    Unsplit,
    /// The answer may begin with an opening tag.
    Possible,
    /// The prompt has opened the reasoning.
    Open,
    /// The prompt has text of the reasoning, which the answer continues to the letter.
    Continued,
}

impl Reasoning {
    /// Whether the answer begins within reasoning.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Continued)
    }
}

/// The part of an answer that a text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThinkPart {
    Reasoning,
    Content,
}

/// Opening and closing tags.
pub(crate) type ThinkTags = &'static [[&'static str; 2]];

/// The tags of most models.
pub(crate) const THINK: ThinkTags = &[THINK_OR_BRACKETS[0]];
/// Mistral's models write either pair.
pub(crate) const THINK_OR_BRACKETS: ThinkTags = &[["<think>", "</think>"], ["[THINK]", "[/THINK]"]];
/// MiniMax-M3's tags.
pub(crate) const MM_THINK: ThinkTags = &[["<mm:think>", "</mm:think>"]];

/// Splits one answer.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    tags: ThinkTags,
    /// The part that the text is in.
    pub part: ThinkPart,
    /// White space in reasoning that is dropped if the closing tag follows.
    space: String,
    literals: Literals,
    /// White space at the start of the current part is dropped.
    at_start: bool,
    /// The reasoning is over.
    reasoned: bool,
}

impl ThinkSplitter {
    /// A splitter for these tags.
    pub fn new(tags: ThinkTags, reasoning: Reasoning) -> Self {
        let part = if reasoning.is_open() { ThinkPart::Reasoning } else { ThinkPart::Content };
        let at_start = reasoning != Reasoning::Continued;
        let (space, literals) = (String::new(), Literals::default());
        ThinkSplitter { tags, part, space, literals, at_start, reasoned: false }
    }

    /// Takes the next piece and returns the parts that it completes, in order.
    pub fn push(&mut self, piece: &str) -> Vec<(ThinkPart, String)> {
        let mut parts = Vec::new();
        piece.chars().for_each(|c| self.take(c, &mut parts));
        parts
    }

    /// Takes the end of the answer and returns the text held back.
    pub fn finish(&mut self) -> Vec<(ThinkPart, String)> {
        let mut parts = Vec::new();
        let rest = self.literals.take();
        self.emit(&rest, &mut parts);
        parts
    }

    fn take(&mut self, c: char, parts: &mut Vec<(ThinkPart, String)>) {
        let (reasoning, reasoned) = (self.part == ThinkPart::Reasoning, self.reasoned);
        let over = !reasoning && (reasoned || !self.at_start);
        let tags = if over { &[] } else { self.tags };
        // An answer that begins with a closing tag has no reasoning.
        let opening = tags.iter().filter(|_| !reasoning).map(|[open, _]| *open);
        let options = opening.chain(tags.iter().map(|[_, close]| *close));
        match self.literals.push(options, c) {
            Scan::Partial => {}
            Scan::Whole(index) => self.turn(!reasoning && index < tags.len()),
            Scan::None if !self.literals.is_empty() => {
                let read = self.literals.take();
                self.emit(&read, parts);
                self.take(c, parts);
            }
            Scan::None if !over && c.is_whitespace() => self.space.push(c),
            Scan::None => self.emit(c.encode_utf8(&mut [0; 4]), parts),
        }
    }

    /// Takes an opening or a closing tag.
    fn turn(&mut self, opens: bool) {
        self.space.clear();
        self.reasoned = !opens;
        self.part = if opens { ThinkPart::Reasoning } else { ThinkPart::Content };
        self.at_start = true;
    }

    /// Gives out text with the white space that was held before it.
    fn emit(&mut self, text: &str, parts: &mut Vec<(ThinkPart, String)>) {
        let text = std::mem::take(&mut self.space) + text;
        let text = if self.at_start { text.trim_start() } else { &text };
        if text.is_empty() {
            return;
        }
        self.at_start = false;
        match parts.last_mut() {
            Some((part, last)) if *part == self.part => last.push_str(text),
            _ => parts.push((self.part, text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(open: bool, pieces: &[&str]) -> (String, String) {
        let reasoning = if open { Reasoning::Open } else { Reasoning::Possible };
        split(reasoning, pieces)
    }

    fn split(reasoning: Reasoning, pieces: &[&str]) -> (String, String) {
        let mut splitter = ThinkSplitter::new(THINK, reasoning);
        let mut parts: Vec<_> = pieces.iter().flat_map(|p| splitter.push(p)).collect();
        parts.extend(splitter.finish());
        let of = |wanted| parts.iter().filter(|p| p.0 == wanted).map(|p| p.1.as_str()).collect();
        (of(ThinkPart::Reasoning), of(ThinkPart::Content))
    }

    fn check(open: bool, pieces: &[&str], reasoning: &str, content: &str) {
        assert_eq!(run(open, pieces), (reasoning.into(), content.into()), "{pieces:?}");
    }

    #[test]
    fn tags_split_reasoning_from_content() {
        check(false, &["<think>\nwhy\n</think>\n\nyes"], "why", "yes");
        check(true, &["why</think>yes"], "why", "yes");
        check(false, &["plain < text"], "", "plain < text");
        check(true, &["never closed "], "never closed ", "");
    }

    #[test]
    fn an_answer_may_begin_with_the_end_of_no_reasoning() {
        check(false, &["\n</think>\n\nyes</think>"], "", "yes</think>");
        check(false, &["</th", "ink>", "<think>x"], "", "<think>x");
        check(false, &["</thin"], "", "</thin");
    }

    #[test]
    fn continued_reasoning_keeps_the_space_before_it() {
        let split = split(Reasoning::Continued, &[" ques", "tion\n</think>", "\n\nyes"]);
        assert_eq!(split, (" question".into(), "yes".into()));
    }

    #[test]
    fn tags_inside_content_are_content() {
        check(false, &["say <think>x</think>"], "", "say <think>x</think>");
        check(true, &["a</think>b <think>c"], "a", "b <think>c");
    }

    #[test]
    fn partial_tags_are_held_back() {
        let mut splitter = ThinkSplitter::new(THINK, Reasoning::Possible);
        assert_eq!(splitter.push("<thi"), []);
        assert_eq!(splitter.push("ng"), [(ThinkPart::Content, "<thing".into())]);
        assert_eq!(splitter.push("a <thi"), [(ThinkPart::Content, "a <thi".into())]);
        check(false, &["<th", "ink>w", "</", "think>", " y"], "w", "y");
    }

    #[test]
    fn inner_white_space_is_kept() {
        check(true, &["a \n", " b", " </think>", " c\n", "\nd"], "a \n b", "c\n\nd");
    }

    proptest! {
        #[test]
        fn cutting_makes_no_difference(
            words in prop::collection::vec("<think>|</think>|<|[ \n]|a|think>", 0..8),
            open in any::<bool>(),
        ) {
            let text = words.concat();
            let by_char: Vec<String> = text.chars().map(String::from).collect();
            let by_char: Vec<&str> = by_char.iter().map(String::as_str).collect();
            prop_assert_eq!(run(open, &[&text]), run(open, &by_char));
        }
    }
}
