//! Log probabilities in the forms of chat and of text completions.

use api::{TokenText, TopToken};
use serde_json::{Map, Value, json};

/// The `content` list of a chat choice.
pub(crate) fn chat(tokens: &[TokenText]) -> Vec<Value> {
    let token = |token: &TokenText| {
        let mut entry = entry(&token.text, &token.bytes, token.logprob);
        entry.insert("top_logprobs".into(), token.top.iter().map(top).collect());
        Value::Object(entry)
    };
    tokens.iter().map(token).collect()
}

fn top(token: &TopToken) -> Value {
    Value::Object(entry(&token.text, &token.bytes, token.logprob))
}

fn entry(text: &str, bytes: &[u8], logprob: f32) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("token".into(), text.into());
    entry.insert("logprob".into(), finite(logprob));
    entry.insert("bytes".into(), bytes.into());
    entry
}

/// JSON has no infinities: a token that could not have been chosen has OpenAI's lowest value.
fn finite(logprob: f32) -> Value {
    json!(f64::from(logprob).max(-9999.0))
}

/// The parallel lists of a text choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextLogprobs {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
}

impl TextLogprobs {
    /// Adds `tokens`, the first of which begins `offset` characters into the text; gives the
    /// offset after them.
    pub fn add(&mut self, tokens: &[TokenText], mut offset: usize) -> usize {
        for token in tokens {
            self.tokens.push(token.text.as_str().into());
            self.token_logprobs.push(finite(token.logprob));
            self.top_logprobs.push(by_text(token));
            self.text_offset.push(offset);
            offset += characters(&token.bytes);
        }
        offset
    }

    /// The JSON of the lists.
    pub fn into_json(self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

/// The alternatives and the chosen token, by text; of tokens with one text the likelier stays.
fn by_text(token: &TokenText) -> Value {
    let mut all = Map::new();
    for top in &token.top {
        all.entry(top.text.as_str()).or_insert_with(|| finite(top.logprob));
    }
    all.entry(token.text.as_str()).or_insert_with(|| finite(token.logprob));
    Value::Object(all)
}

/// Characters that begin in `bytes`, so that the parts of a split one count once.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Value::from(all), expected);
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
    fn the_chosen_token_is_among_its_alternatives() {
        let mut lists = TextLogprobs::default();
        lists.add(&[token("a", b"a", &[("b", -0.25)])], 0);
        assert_eq!(lists.into_json()["top_logprobs"], json!([{"b": -0.25, "a": -0.5}]));
    }
}
