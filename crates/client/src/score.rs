//! Log probabilities of the tokens of a text.

use super::error::ClientError;
use super::origin::AnswerOrigin;
use super::wire::{WireUsage, at_most};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum number of tokens.
const MAX_TOKENS: usize = 1 << 20;

/// A request for the log probabilities of a text's tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreQuery {
    /// Name of the model.
    pub model: String,
    /// The text.
    pub text: String,
    /// Whether a token is generated after the text: some servers refuse to generate none.
    pub generate: bool,
    /// Further members of the request, which replace others of the same name.
    pub extra: Map<String, Value>,
}

/// The tokens of a text with their log probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredText {
    /// The tokens in order. The last one may be a generated one if [`ScoreQuery::generate`] is set:
    /// its offset is at the end of the text.
    pub tokens: Vec<ScoredToken>,
    /// Tokens of the text as the server counts them, if it does.
    pub prompt_tokens: Option<u64>,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredToken {
    /// The text of the token.
    pub text: String,
    /// Natural logarithm of its probability after the tokens before it. The first token has none.
    pub logprob: Option<f64>,
    /// Where it begins, in characters from the beginning of the text, if the server says so.
    pub offset: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct WireCompletion {
    #[serde(deserialize_with = "at_most::<128, _, _>")]
    choices: Vec<WireTextChoice>,
    usage: Option<WireUsage>,
}

#[derive(Debug, Deserialize)]
struct WireTextChoice {
    logprobs: Option<WireLogprobs>,
}

#[derive(Debug, Deserialize)]
struct WireLogprobs {
    #[serde(deserialize_with = "at_most::<MAX_TOKENS, _, _>")]
    tokens: Vec<String>,
    #[serde(deserialize_with = "at_most::<MAX_TOKENS, _, _>")]
    token_logprobs: Vec<Option<f64>>,
    #[serde(default, deserialize_with = "at_most::<MAX_TOKENS, _, _>")]
    text_offset: Vec<u64>,
}

impl ScoreQuery {
    pub(super) fn body(&self) -> Value {
        let mut body = json!({
            "model": self.model,
            "prompt": self.text,
            "echo": true,
            // Some servers take 0 for none at all.
            "logprobs": 1,
            "max_tokens": u8::from(self.generate),
            "temperature": 0,
        });
        for (name, value) in &self.extra {
            body[name] = value.clone();
        }
        body["stream"] = json!(false);
        body
    }
}

/// Reads the body of an answer.
///
/// # Errors
/// If it has no log probabilities of all tokens.
pub(super) fn read(body: &[u8], origin: &AnswerOrigin) -> Result<ScoredText, ClientError> {
    let malformed = |expected: &str| origin.malformed(expected, &String::from_utf8_lossy(body));
    let answer: WireCompletion = serde_json::from_slice(body)
        .map_err(|error| malformed(&format!("a completion with log probabilities ({error})")))?;
    let choice = answer.choices.into_iter().next();
    let lists = choice.and_then(|choice| choice.logprobs);
    let lists = lists.ok_or_else(|| malformed("choices[0].logprobs"))?;
    let (count, offsets) = (lists.tokens.len(), lists.text_offset);
    if lists.token_logprobs.len() != count {
        return Err(malformed("as many token_logprobs as tokens"));
    }
    let prompt_tokens = answer.usage.and_then(|usage| usage.prompt_tokens);
    if prompt_tokens.is_some_and(|expected| expected > count as u64) {
        // A server that does not know `echo` has the generated token only.
        return Err(malformed("log probabilities of all tokens of the prompt (echo)"));
    }
    let tokens = lists.tokens.into_iter().zip(lists.token_logprobs).enumerate();
    let token = |(index, (text, logprob))| {
        let offset = offsets.get(index).copied();
        ScoredToken { text, logprob, offset }
    };
    Ok(ScoredText { tokens: tokens.map(token).collect(), prompt_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(logprobs: &str, prompt_tokens: u64) -> Result<ScoredText, ClientError> {
        let usage = format!(r#"{{"prompt_tokens": {prompt_tokens}, "completion_tokens": 0}}"#);
        let body = format!(r#"{{"choices": [{{"logprobs": {logprobs}}}], "usage": {usage}}}"#);
        let origin = AnswerOrigin { url: "http://a/v1/completions".into(), key: None };
        read(body.as_bytes(), &origin)
    }

    #[test]
    fn tokens_have_their_log_probabilities_and_offsets() {
        let lists = r#"{"tokens": ["a", " b"], "token_logprobs": [null, -0.5],
            "text_offset": [0, 1], "top_logprobs": [null, {" b": -0.5}]}"#;
        let token = |text: &str, logprob, offset| ScoredToken {
            text: text.into(),
            logprob,
            offset: Some(offset),
        };
        let expected = vec![token("a", None, 0), token(" b", Some(-0.5), 1)];
        let scored = scored(lists, 2).unwrap();
        assert_eq!((scored.tokens, scored.prompt_tokens), (expected, Some(2)));
    }

    #[test]
    fn offsets_may_be_missing() {
        let lists = r#"{"tokens": ["a"], "token_logprobs": [-1]}"#;
        assert_eq!(scored(lists, 1).unwrap().tokens[0].offset, None);
    }

    fn check_refused(lists: &str, prompt_tokens: u64, expected: &str) {
        let refused = scored(lists, prompt_tokens).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }

    #[test]
    fn what_is_incomplete_is_refused() {
        check_refused("null", 1, "expected choices[0].logprobs");
        check_refused(r#"{"tokens": ["a"], "token_logprobs": []}"#, 1, "as many");
        check_refused(r#"{"tokens": ["a"], "token_logprobs": [-1]}"#, 2, "(echo)");
        check_refused(r#"{"tokens": ["a"]}"#, 1, "token_logprobs");
    }

    #[test]
    fn the_body_asks_for_an_echo() {
        let query = ScoreQuery { model: "m".into(), text: "a b".into(), ..ScoreQuery::default() };
        let expected = json!({
            "model": "m", "prompt": "a b", "echo": true, "logprobs": 1, "max_tokens": 0,
            "temperature": 0, "stream": false,
        });
        assert_eq!(query.body(), expected);
        assert_eq!(ScoreQuery { generate: true, ..query }.body()["max_tokens"], 1);
    }
}
