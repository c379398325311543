//! Log probabilities in the forms of chat and of text completions.

use api::{TokenText, TopToken};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A token of a chat choice, with its log probability.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenLogprob {
    token: String,
    #[schema(maximum = 0)]
    logprob: f64,
    bytes: Vec<u8>,
    /// The likeliest tokens in its place, best first.
    top_logprobs: Vec<TopLogprob>,
}

/// A token that could have been chosen.
#[derive(Debug, Serialize, ToSchema)]
struct TopLogprob {
    token: String,
    #[schema(maximum = 0)]
    logprob: f64,
    bytes: Vec<u8>,
}

/// The `content` list of a chat choice.
pub(crate) fn chat(tokens: &[TokenText]) -> Vec<TokenLogprob> {
    let token = |token: &TokenText| TokenLogprob {
        token: token.text.clone(),
        logprob: finite(token.logprob),
        bytes: token.bytes.clone(),
        top_logprobs: token.top.iter().map(top).collect(),
    };
    tokens.iter().map(token).collect()
}

fn top(token: &TopToken) -> TopLogprob {
    let TopToken { text, bytes, logprob, .. } = token;
    TopLogprob { token: text.clone(), logprob: finite(*logprob), bytes: bytes.clone() }
}

/// JSON has no infinities: a token that could not have been chosen has OpenAI's lowest value.
fn finite(logprob: f32) -> f64 {
    f64::from(logprob).max(-9999.0)
}

/// The parallel lists of a text choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct TextLogprobs {
    tokens: Vec<String>,
    /// That of the first token of a prompt is `null`.
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<BTreeMap<String, f64>>>,
    /// Characters of the text before each token.
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Adds `tokens`, the first of which begins `offset` characters into the text; gives the
    /// offset after them.
    pub fn add(&mut self, tokens: &[TokenText], mut offset: usize) -> usize {
        for token in tokens {
            self.push(token, offset);
            offset += characters(&token.bytes);
        }
        offset
    }

    /// Adds the tokens of a prompt whose text is `text`. Nothing comes before the `first` one, so
    /// that nothing can be said of how likely it was; `rest` are those behind it.
    pub fn add_prompt(&mut self, first: &[u8], rest: &[TokenText], text: &str) {
        let mut place = TextCursor { text: text.as_bytes(), at: 0, characters: 0 };
        self.tokens.push(String::from_utf8_lossy(first).into_owned());
        self.token_logprobs.push(None);
        self.top_logprobs.push(None);
        self.text_offset.push(place.pass(first));
        for token in rest {
            self.push(token, place.pass(&token.bytes));
        }
    }

    fn push(&mut self, token: &TokenText, offset: usize) {
        self.tokens.push(token.text.clone());
        self.token_logprobs.push(Some(finite(token.logprob)));
        self.top_logprobs.push(Some(by_text(token)));
        self.text_offset.push(offset);
    }
}

/// A place in a text.
#[derive(Debug)]
struct TextCursor<'a> {
    text: &'a [u8],
    at: usize,
    characters: usize,
}

impl TextCursor<'_> {
    /// Goes behind the next token; gives the characters before it. Tokens that the text does not
    /// show, such as the one that texts of a model begin with, have no width, nor has the space
    /// that some tokenizers put before a text.
    fn pass(&mut self, token: &[u8]) -> usize {
        let before = self.characters;
        let bare = if self.at == 0 { token.strip_prefix(b" ") } else { None };
        let rest = &self.text[self.at..];
        let shown = [Some(token), bare].into_iter().flatten().find(|it| rest.starts_with(it));
        if let Some(shown) = shown {
            self.at += shown.len();
            self.characters += characters(shown);
        }
        before
    }
}

/// The alternatives and the chosen token, by text; of tokens with one text the likelier stays.
fn by_text(token: &TokenText) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for top in &token.top {
        all.entry(top.text.clone()).or_insert(finite(top.logprob));
    }
    all.entry(token.text.clone()).or_insert(finite(token.logprob));
    all
}

/// Characters that begin in `bytes`, so that the parts of a split one count once.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn token(text: &str, bytes: &[u8], top: &[(&str, f32)]) -> TokenText {
        let top = top.iter().map(|&(text, logprob)| TopToken {
            id: 1,
            text: text.into(),
            bytes: text.into(),
            logprob,
        });
        let top = top.collect();
        TokenText { id: 0, text: text.into(), bytes: bytes.into(), logprob: -0.5, top }
    }

    #[test]
    fn chat_form_has_token_bytes_and_alternatives() {
        let all = chat(&[token("é", "é".as_bytes(), &[("e", f32::NEG_INFINITY)])]);
        let expected = json!([{
            "token": "é", "logprob": -0.5, "bytes": [195, 169],
            "top_logprobs": [{"token": "e", "logprob": -9999.0, "bytes": [101]}],
        }]);
        assert_eq!(json!(all), expected);
    }

    #[test]
    fn offsets_count_a_split_character_once() {
        let mut lists = TextLogprobs::default();
        let halves = [token("\u{fffd}", b"\xc3", &[]), token("\u{fffd}", b"\xa9", &[])];
        let end = lists.add(&halves, 7);
        assert_eq!(lists.add(&[token("ab", b"ab", &[])], end), 10);
        assert_eq!(lists.text_offset, [7, 8, 8]);
    }

    #[test]
    fn prompts_begin_with_a_token_of_unknown_likelihood() {
        let mut lists = TextLogprobs::default();
        let rest = [token("h", b"h", &[]), token("\u{fffd}", b"\xc3", &[])];
        lists.add_prompt(b"<bos>", &[&rest[..], &[token("x", b"\xa9x", &[])]].concat(), "h\u{e9}x");
        assert_eq!(lists.text_offset, [0, 0, 1, 2]);
        assert_eq!(lists.token_logprobs, [None, Some(-0.5), Some(-0.5), Some(-0.5)]);
        assert_eq!((lists.top_logprobs[0].as_ref(), lists.tokens.len()), (None, 4));
        let mut spaced = TextLogprobs::default();
        spaced.add_prompt(b" a", &[token(" b", b" b", &[])], "a b");
        assert_eq!(spaced.text_offset, [0, 1]);
    }

    #[test]
    fn the_chosen_token_is_among_its_alternatives() {
        let mut lists = TextLogprobs::default();
        lists.add(&[token("a", b"a", &[("b", -0.25)])], 0);
        assert_eq!(json!(lists)["top_logprobs"], json!([{"b": -0.25, "a": -0.5}]));
    }
}
