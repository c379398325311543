//! Search for added tokens in text, the first stage of encoding.
//!
//! Matching is leftmost, then longest, with the `lstrip`, `rstrip` and `single_word` rules of
//! Hugging Face tokenizers. Special tokens match only on request, and never inside a range marked
//! as literal, so that the text of users cannot forge them.

use crate::error::{Result, TextError};
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// A token that matches its text as a whole.
#[derive(Debug, Clone)]
pub(crate) struct AddedToken {
    pub id: u32,
    pub text: String,
    pub special: bool,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
}

/// A span of the input: plain text, or one added token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextSpan {
    pub range: Range<usize>,
    pub token: Option<u32>,
}

/// Which special tokens may match.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Specials<'a> {
    /// None: their text is plain text.
    Ignore,
    /// All that do not touch these ranges of the text, which are in order.
    Outside(&'a [Range<usize>]),
}

/// A set of added tokens compiled for search.
#[derive(Debug, Default)]
pub(crate) struct AddedTokens {
    tokens: Vec<AddedToken>,
    all: Automaton,
    plain: Automaton,
}

#[derive(Debug, Default)]
struct Automaton {
    search: Option<AhoCorasick>,
    /// Index into the tokens for each pattern.
    indices: Vec<usize>,
}

impl AddedTokens {
    /// Compiles `tokens`; empty texts never match.
    ///
    /// # Errors
    /// If the texts are too large for an automaton.
    pub fn new(tokens: Vec<AddedToken>) -> Result<Self> {
        let all = Automaton::new(&tokens, |t| !t.text.is_empty())?;
        let plain = Automaton::new(&tokens, |t| !t.text.is_empty() && !t.special)?;
        Ok(AddedTokens { tokens, all, plain })
    }

    /// Splits `text` into spans that cover it.
    pub fn split(&self, text: &str, specials: Specials) -> Vec<TextSpan> {
        let (automaton, literals) = match specials {
            Specials::Ignore => (&self.plain, &[][..]),
            Specials::Outside(literals) => (&self.all, literals),
        };
        let mut pieces = Vec::new();
        let mut done = 0;
        for (index, found) in automaton.matches(text) {
            let token = &self.tokens[index];
            let forged = token.special && touches(literals, &found);
            if found.start < done || forged || !word_rule_holds(token, text, &found) {
                continue;
            }
            let range = widen(token, text, found, done);
            push_text(&mut pieces, done..range.start);
            done = range.end;
            pieces.push(TextSpan { range, token: Some(token.id) });
        }
        push_text(&mut pieces, done..text.len());
        pieces
    }

    /// The texts of the tokens.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|token| &*token.text)
    }

    /// Whether a token takes white space around it.
    pub fn widens(&self) -> bool {
        self.tokens.iter().any(|token| token.lstrip || token.rstrip)
    }

    /// Whether `text` ends with the beginning of a special token.
    pub fn ends_like_special(&self, text: &str) -> bool {
        let begins = |token: &AddedToken| {
            let starts = token.text.char_indices().map(|(at, _)| at).filter(|&at| at > 0);
            token.special && { starts }.any(|at| text.ends_with(&token.text[..at]))
        };
        self.tokens.iter().any(begins)
    }

    /// Returns the ranges of `text` that match special tokens.
    pub fn special_ranges(&self, text: &str) -> Vec<Range<usize>> {
        let found = self.all.matches(text).filter(|(index, _)| self.tokens[*index].special);
        found.map(|(_, range)| range).collect()
    }
}

impl Automaton {
    fn new(tokens: &[AddedToken], wanted: impl Fn(&AddedToken) -> bool) -> Result<Self> {
        let indices: Vec<usize> = (0..tokens.len()).filter(|&i| wanted(&tokens[i])).collect();
        if indices.is_empty() {
            return Ok(Automaton { search: None, indices });
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(indices.iter().map(|&i| &tokens[i].text))
            .map_err(|e| TextError::tokenizer("added_tokens", e.to_string()))?;
        Ok(Automaton { search: Some(search), indices })
    }

    fn matches<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, Range<usize>)> + 'a {
        let found = self.search.iter().flat_map(move |search| search.find_iter(text));
        found.map(|m| (self.indices[m.pattern().as_usize()], m.range()))
    }
}

fn push_text(pieces: &mut Vec<TextSpan>, range: Range<usize>) {
    if !range.is_empty() {
        pieces.push(TextSpan { range, token: None });
    }
}

fn touches(literals: &[Range<usize>], found: &Range<usize>) -> bool {
    let first = literals.partition_point(|l| l.end <= found.start);
    literals.get(first).is_some_and(|l| l.start < found.end)
}

/// `single_word` tokens match only between characters that are not part of a word.
fn word_rule_holds(token: &AddedToken, text: &str, found: &Range<usize>) -> bool {
    let is_word = regex_syntax::is_word_character;
    !token.single_word
        || !(text[..found.start].ends_with(is_word) || text[found.end..].starts_with(is_word))
}

/// Widens a match by the white space that the token strips, but not before `done`.
fn widen(token: &AddedToken, text: &str, found: Range<usize>, done: usize) -> Range<usize> {
    let Range { mut start, mut end } = found;
    if token.lstrip {
        start = text[..start].trim_end().len().max(done);
    }
    if token.rstrip {
        end = text.len() - text[end..].trim_start().len();
    }
    start..end
}

/// Returns the normalized `text`.
pub(crate) fn normalize(text: &str, normalizer: Option<&NormalizerWrapper>) -> Result<String> {
    let mut text = NormalizedString::from(text);
    let done = normalizer.map_or(Ok(()), |n| n.normalize(&mut text));
    done.map_err(|e| TextError::tokenizer("added_tokens", e.to_string()))?;
    Ok(text.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, text: &str, special: bool) -> AddedToken {
        let text = text.into();
        AddedToken { id, text, special, single_word: false, lstrip: false, rstrip: false }
    }

    fn sample() -> AddedTokens {
        let tokens = vec![
            token(1, "<s>", true),
            token(2, "<think>", false),
            token(3, "<s><s>", true),
            AddedToken { lstrip: true, rstrip: true, ..token(4, "[M]", true) },
            AddedToken { single_word: true, ..token(5, "day", false) },
        ];
        AddedTokens::new(tokens).unwrap()
    }

    fn shown(text: &str, specials: Specials) -> Vec<String> {
        let show = |p: &TextSpan| match p.token {
            Some(id) => format!("#{id}"),
            None => text[p.range.clone()].to_string(),
        };
        sample().split(text, specials).iter().map(show).collect()
    }

    #[test]
    fn longest_match_wins_at_the_leftmost_place() {
        assert_eq!(shown("a<s><s><s>b", Specials::Outside(&[])), ["a", "#3", "#1", "b"]);
    }

    #[test]
    fn special_tokens_are_text_unless_asked_for() {
        assert_eq!(shown("<s><think>", Specials::Ignore), ["<s>", "#2"]);
        assert_eq!(shown("", Specials::Ignore), Vec::<String>::new());
    }

    #[test]
    fn special_tokens_in_literal_ranges_are_text() {
        let second = 4..7;
        let literals = std::slice::from_ref(&second);
        assert_eq!(shown("<s>-<s>", Specials::Outside(literals)), ["#1", "-<s>"]);
        assert_eq!(shown("<s>-<s>", Specials::Outside(&[0..1, 2..3])), ["<s>-", "#1"]);
    }

    #[test]
    fn strip_rules_take_neighbouring_white_space() {
        assert_eq!(shown("a \n[M]  [M] b", Specials::Outside(&[])), ["a", "#4", "#4", "b"]);
    }

    #[test]
    fn single_words_do_not_match_inside_words() {
        assert_eq!(shown("monday day", Specials::Ignore), ["monday ", "#5"]);
        // Letters, marks, digits, connectors and joiners are of a word, other signs are not.
        for c in [
            'a', 'é', '中', '\u{301}', '\u{94d}', '\u{20dd}', '7', '٣', 'ⅷ', 'ⓐ', '_', '\u{203f}',
            '\u{200d}', '\u{200c}',
        ] {
            let (before, after) = (format!("{c}day"), format!("day{c}"));
            assert_eq!(shown(&before, Specials::Ignore), [&*before], "{c:?} before");
            assert_eq!(shown(&after, Specials::Ignore), [&*after], "{c:?} after");
        }
        for c in [' ', '-', '½', '²', '\u{200b}', '\u{2060}', '。', '🙂', '\u{ad}'] {
            let text = format!("{c}day{c}");
            assert_eq!(shown(&text, Specials::Ignore).len(), 3, "{c:?}");
        }
    }
}
