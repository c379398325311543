//! Log probabilities in the form of chat completions.

use crate::http::error::HttpError;
use api::{TokenText, TopToken};
use serde::Serialize;
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

/// How many alternatives each token is returned with: `top`, if log probabilities are `on`.
pub(crate) fn alternatives(
    on: Option<bool>,
    top: Option<usize>,
) -> Result<Option<usize>, HttpError> {
    match (on.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(1..)) => Err(HttpError::member("top_logprobs", "needs logprobs to be true")),
        (false, _) => Ok(None),
    }
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
pub(crate) fn finite(logprob: f32) -> f64 {
    f64::from(logprob).max(-9999.0)
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
}
