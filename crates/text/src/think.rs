//! Splitting reasoning from content while the text streams in.
//!
//! Reasoning stands at the start of an answer between an opening and a closing tag; everything
//! else is content, and a tag inside content is content. A piece that may be the start of a tag
//! is held back until it is known; the tags and the white space around them are dropped.

/// Which part of an answer a text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The model's reasoning.
    Reasoning,
    /// The answer proper.
    Content,
}

/// A running split of one answer.
#[derive(Debug, Clone)]
pub struct ThinkSplitter {
    open: String,
    close: String,
    part: Part,
    held: String,
    /// White space at the start of the current part is dropped.
    at_start: bool,
    /// The reasoning is over.
    reasoned: bool,
}

impl ThinkSplitter {
    /// For `<think>` and `</think>`; `open` says that the prompt already opened the reasoning.
    pub fn new(open: bool) -> Self {
        Self::with_tags("<think>", "</think>", open)
    }

    /// For other tags.
    pub fn with_tags(open_tag: &str, close_tag: &str, open: bool) -> Self {
        let part = if open { Part::Reasoning } else { Part::Content };
        let (open, close) = (open_tag.to_owned(), close_tag.to_owned());
        let held = String::new();
        ThinkSplitter { open, close, part, held, at_start: true, reasoned: false }
    }

    /// Whether a rendered prompt ends by opening reasoning.
    pub fn prompt_opens_reasoning(prompt: &str) -> bool {
        prompt.trim_end().ends_with("<think>")
    }

    /// The part that the text has got to.
    pub fn part(&self) -> Part {
        self.part
    }

    /// The parts that `piece` completes, in order.
    pub fn push(&mut self, piece: &str) -> Vec<(Part, String)> {
        self.held.push_str(piece);
        let mut parts = Vec::new();
        while let Some((at, len)) = self.find_tag() {
            let rest = self.held.split_off(at + len);
            self.held.truncate(at);
            let text = std::mem::replace(&mut self.held, rest);
            self.emit(text.trim_end(), &mut parts);
            self.turn();
        }
        let safe = self.held.len() - self.unsure();
        let rest = self.held.split_off(safe);
        let text = std::mem::replace(&mut self.held, rest);
        self.emit(&text, &mut parts);
        parts
    }

    /// The end of the answer: what was held back.
    pub fn finish(&mut self) -> Vec<(Part, String)> {
        let mut parts = Vec::new();
        let text = std::mem::take(&mut self.held);
        self.emit(&text, &mut parts);
        parts
    }

    /// The tag that would end the current part; content that has begun never ends.
    fn tag(&self) -> Option<&str> {
        match self.part {
            Part::Reasoning => Some(&self.close),
            Part::Content if self.reasoned || !self.at_start => None,
            Part::Content => Some(&self.open),
        }
    }

    /// The place and length of that tag; an opening tag has only white space before it.
    fn find_tag(&self) -> Option<(usize, usize)> {
        let tag = self.tag()?;
        let at = self.held.find(tag)?;
        let leads = self.part == Part::Reasoning || self.held[..at].trim().is_empty();
        leads.then_some((at, tag.len()))
    }

    fn turn(&mut self) {
        self.reasoned = self.part == Part::Reasoning;
        self.part = if self.reasoned { Part::Content } else { Part::Reasoning };
        self.at_start = true;
    }

    fn emit(&mut self, text: &str, parts: &mut Vec<(Part, String)>) {
        let text = if self.at_start { text.trim_start() } else { text };
        if !text.is_empty() {
            self.at_start = false;
            parts.push((self.part, text.to_owned()));
        }
    }

    /// The length of the end that may still turn out to be a tag, with the white space before it.
    fn unsure(&self) -> usize {
        let Some(tag) = self.tag() else { return 0 };
        let starts = tag.char_indices().map(|(at, _)| at).rev();
        let partial = starts.filter(|&len| self.held.ends_with(&tag[..len])).max().unwrap_or(0);
        let before = &self.held[..self.held.len() - partial];
        self.held.len() - before.trim_end().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(open: bool, pieces: &[&str]) -> (String, String) {
        let mut splitter = ThinkSplitter::new(open);
        let mut parts: Vec<_> = pieces.iter().flat_map(|p| splitter.push(p)).collect();
        parts.extend(splitter.finish());
        let of = |wanted| parts.iter().filter(|p| p.0 == wanted).map(|p| p.1.as_str()).collect();
        (of(Part::Reasoning), of(Part::Content))
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
    fn tags_inside_content_are_content() {
        check(false, &["say <think>x</think>"], "", "say <think>x</think>");
        check(true, &["a</think>b <think>c"], "a", "b <think>c");
    }

    #[test]
    fn partial_tags_are_held_back() {
        let mut splitter = ThinkSplitter::new(false);
        assert_eq!(splitter.push("<thi"), []);
        assert_eq!(splitter.push("ng"), [(Part::Content, "<thing".into())]);
        assert_eq!(splitter.push("a <thi"), [(Part::Content, "a <thi".into())]);
        check(false, &["<th", "ink>w", "</", "think>", " y"], "w", "y");
    }

    #[test]
    fn inner_white_space_is_kept() {
        check(true, &["a \n", " b", " </think>", " c\n", "\nd"], "a \n b", "c\n\nd");
    }

    #[test]
    fn prompts_that_open_reasoning_are_recognised() {
        assert!(ThinkSplitter::prompt_opens_reasoning("x<think>\n"));
        assert!(!ThinkSplitter::prompt_opens_reasoning("x<think>\n\n</think>\n\n"));
        assert!(!ThinkSplitter::prompt_opens_reasoning("what is <think>?"));
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
