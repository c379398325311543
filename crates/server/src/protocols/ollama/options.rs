//! `options`: sampling in Ollama's words.

use crate::generate::sampling::{SamplingRules, sampling_schema};
use crate::http::error::HttpError;
use crate::http::wire::{self, Texts};
use api::{Prompt, SamplingOptions, Service, TextRequest};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

const RULES: SamplingRules = SamplingRules {
    path: "options",
    members: &[
        ("temperature", "Divides the logits; 0 takes the most likely token."),
        ("top_k", "Keep the k most likely; 0 or less for all."),
        ("top_p", "Keep the smallest set of most likely tokens of at least this mass."),
        ("min_p", "Drop tokens less likely than this share of the most likely one."),
        ("typical_p", "Keep the locally typical set of this mass."),
        ("repeat_penalty", "Divides or multiplies the logits of tokens in the window."),
        ("repeat_last_n", "How many of the last tokens the penalties look at; -1 for all."),
        ("presence_penalty", "Subtracted once from tokens generated in the window."),
        ("frequency_penalty", "Subtracted per occurrence from tokens generated in the window."),
        ("seed", "Seed of the random numbers; -1 draws one."),
        ("stop", ""),
        (
            "num_predict",
            "Most tokens to generate; -1 and -2 for all that the context has room for.",
        ),
    ],
    least_top_k: None,
    least_tokens: -2,
    clamps_temperature: false,
};

/// How to sample.
#[derive(Debug)]
pub(crate) struct Options;

sampling_schema!(
    Options,
    "Options",
    RULES,
    Float,
    OllamaMembers,
    "How to sample. Options that say how a model is loaded, such as `num_ctx`, are read and change\n\
     nothing."
);

/// The options that only this protocol has.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename = "Options")]
struct OllamaMembers {
    /// Strings that end the answer and are not part of it.
    stop: Option<Texts>,
    /// The context is what the server was started with.
    #[serde(default, deserialize_with = "wire::integer")]
    num_ctx: Option<i64>,
    /// Must be 0.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = 0, maximum = 0)]
    mirostat: Option<i64>,
}

/// Refuses sampling, and ids that went before, that no answer could be made with, where none is to
/// be made.
pub(crate) fn refuse(
    service: &Service,
    before: Vec<u32>,
    sampling: SamplingOptions,
) -> Result<(), HttpError> {
    let prompt = Prompt::Ids(if before.is_empty() { vec![0] } else { before });
    let request = TextRequest { prompt, add_special: false, sampling, grammar: None };
    service.prepare_text(&request).map(drop).map_err(|error| HttpError::of(error, "options"))
}

/// The sampling that `options` ask for.
pub(crate) fn sampling(options: Option<&Value>) -> Result<SamplingOptions, HttpError> {
    let Some(options) = options else { return Ok(SamplingOptions::default()) };
    let own: OllamaMembers = wire::part(options, RULES.path)?;
    let shared = RULES.read::<f32>(options)?;
    own.check()?;
    Ok(SamplingOptions {
        max_tokens: shared.max_tokens.filter(|&most| most > 0),
        stop: own.stop.map(Texts::all).unwrap_or_default(),
        ..shared
    })
}

impl OllamaMembers {
    fn check(&self) -> Result<(), HttpError> {
        let wrong = |name: &str, expected: &str, value: i64| {
            let message = format!("options.{name} must be {expected}, not {value}");
            Err(HttpError::invalid(format!("options.{name}"), message))
        };
        match (self.num_ctx, self.mirostat) {
            (Some(size @ ..0), _) => wrong("num_ctx", "at least 0", size),
            // Sampling by another rule is nothing to pass over.
            (_, Some(mirostat)) if mirostat != 0 => wrong("mirostat", "0", mirostat),
            _ => Ok(()),
        }
    }
}

/// How many alternatives each token is returned with, if log probabilities are asked for.
pub(crate) fn logprobs(on: Option<bool>, top: Option<usize>) -> Result<Option<usize>, HttpError> {
    match (on.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(1..)) => {
            Err(HttpError::invalid("top_logprobs", "top_logprobs needs logprobs to be true"))
        }
        (false, _) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_error(options: Value, param: &str) {
        let error = sampling(Some(&options)).expect_err(&options.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{options}");
    }

    #[test]
    fn every_option_reaches_its_place() {
        let read = sampling(Some(&json!({
            "temperature": 0.5, "top_k": 40.0, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8,
            "repeat_penalty": 1.1, "repeat_last_n": 64, "presence_penalty": 0.2,
            "frequency_penalty": 0.3, "seed": 42, "num_predict": 7, "stop": ["a", "b"],
            "num_ctx": 8192, "num_gpu": 99, "unheard_of": {}, "mirostat": 0,
        })));
        let expected = SamplingOptions {
            temperature: Some(0.5),
            top_k: Some(40),
            top_p: Some(0.9),
            min_p: Some(0.1),
            typical_p: Some(0.8),
            repeat_penalty: Some(1.1),
            penalty_window: Some(64),
            presence_penalty: Some(0.2),
            frequency_penalty: Some(0.3),
            seed: Some(42),
            max_tokens: Some(7),
            stop: vec!["a".into(), "b".into()],
            ..SamplingOptions::default()
        };
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn below_nothing_is_no_limit() {
        let nothing = json!({"num_predict": -1, "top_k": -1, "repeat_last_n": -1, "seed": -1});
        let top_k = Some(0);
        let expected = SamplingOptions { top_k, ..SamplingOptions::default() };
        assert_eq!(sampling(Some(&nothing)).unwrap(), expected);
        let seed = sampling(Some(&json!({"seed": i64::MAX}))).unwrap().seed;
        assert_eq!(seed, Some(i64::MAX as u64));
        for n in [-2, 0] {
            assert_eq!(sampling(Some(&json!({ "num_predict": n }))).unwrap().max_tokens, None);
        }
    }

    #[test]
    fn what_cannot_be_names_its_path() {
        check_error(json!({"temperature": "hot"}), "options.temperature");
        check_error(json!({"num_predict": -3}), "options.num_predict");
        check_error(json!({"num_predict": 1.5}), "options.num_predict");
        check_error(json!({"repeat_last_n": -2}), "options.repeat_last_n");
        check_error(json!({"num_ctx": "big"}), "options.num_ctx");
        check_error(json!({"seed": 1_u64 << 63}), "options.seed");
        check_error(json!({"mirostat": 2}), "options.mirostat");
        check_error(json!({"stop": [1]}), "options.stop");
        check_error(json!([]), "options");
    }
}
