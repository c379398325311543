//! `options`: sampling in Ollama's words.

use crate::http_error::HttpError;
use crate::wire::{self, Texts};
use api::{Prompt, SamplingOptions, Service, TextRequest};
use serde::Deserialize;
use utoipa::ToSchema;

/// How to sample. Options that say how a model is loaded, such as `num_ctx`, are read and change
/// nothing.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Options {
    /// Divides the logits; 0 takes the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Keep the k most likely; 0 or less for all.
    #[serde(default, deserialize_with = "wire::integer")]
    top_k: Option<i64>,
    /// Keep the smallest set of most likely tokens of at least this mass.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Keep the locally typical set of this mass.
    #[schema(minimum = 0, maximum = 1)]
    typical_p: Option<f32>,
    /// Divides or multiplies the logits of tokens in the window.
    #[schema(minimum = 0.01, maximum = 100)]
    repeat_penalty: Option<f32>,
    /// How many of the last tokens the penalties look at; -1 for all.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    repeat_last_n: Option<i64>,
    /// Subtracted once from tokens generated in the window.
    #[schema(minimum = -100, maximum = 100)]
    presence_penalty: Option<f32>,
    /// Subtracted per occurrence from tokens generated in the window.
    #[schema(minimum = -100, maximum = 100)]
    frequency_penalty: Option<f32>,
    /// Seed of the random numbers; -1 draws one.
    #[serde(default, deserialize_with = "wire::integer")]
    seed: Option<i64>,
    /// Strings that end the answer and are not part of it.
    stop: Option<Texts>,
    /// Most tokens to generate; -1 and -2 for all that the context has room for.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -2)]
    num_predict: Option<i64>,
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

impl Options {
    /// The sampling they ask for.
    pub fn sampling(&self) -> Result<SamplingOptions, HttpError> {
        self.check()?;
        Ok(SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.repeat_last_n.and_then(|n| usize::try_from(n).ok()),
            seed: self.seed.filter(|&seed| seed != -1).map(|seed| seed as u64),
            max_tokens: self.num_predict.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0),
            stop: self.stop.clone().map(Texts::all).unwrap_or_default(),
            ..SamplingOptions::default()
        })
    }

    fn check(&self) -> Result<(), HttpError> {
        let ranges = [
            ("num_predict", self.num_predict, -2, i64::MAX),
            ("repeat_last_n", self.repeat_last_n, -1, i64::MAX),
            ("num_ctx", self.num_ctx, 0, i64::MAX),
            // Sampling by another rule is nothing to pass over.
            ("mirostat", self.mirostat, 0, 0),
        ];
        let outside = |&(_, value, low, high): &(&str, Option<i64>, i64, i64)| {
            value.is_some_and(|value| !(low..=high).contains(&value))
        };
        let Some((name, value, low, high)) = ranges.into_iter().find(outside) else {
            return Ok(());
        };
        let value = value.unwrap_or_default();
        let expected = if low == high { format!("{low}") } else { format!("at least {low}") };
        let message = format!("options.{name} must be {expected}, not {value}");
        Err(HttpError::invalid(format!("options.{name}"), message))
    }
}

/// How many alternatives are told of each token, if its log probability is told at all.
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
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize)]
    struct OptionsBody {
        options: Options,
    }

    fn sampling(options: Value) -> Result<SamplingOptions, HttpError> {
        wire::read::<OptionsBody>(&json!({ "options": options }))?.options.sampling()
    }

    fn check_error(options: Value, param: &str) {
        let error = sampling(options.clone()).expect_err(&options.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{options}");
    }

    #[test]
    fn every_option_reaches_its_place() {
        let read = sampling(json!({
            "temperature": 0.5, "top_k": 40.0, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8,
            "repeat_penalty": 1.1, "repeat_last_n": 64, "presence_penalty": 0.2,
            "frequency_penalty": 0.3, "seed": 42, "num_predict": 7, "stop": ["a", "b"],
            "num_ctx": 8192, "num_gpu": 99, "unheard_of": {}, "mirostat": 0,
        }));
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
        assert_eq!(sampling(nothing).unwrap(), expected);
        for n in [-2, 0] {
            assert_eq!(sampling(json!({ "num_predict": n })).unwrap().max_tokens, None);
        }
    }

    #[test]
    fn what_cannot_be_names_its_path() {
        check_error(json!({"temperature": "hot"}), "options.temperature");
        check_error(json!({"num_predict": -3}), "options.num_predict");
        check_error(json!({"num_predict": 1.5}), "options.num_predict");
        check_error(json!({"repeat_last_n": -2}), "options.repeat_last_n");
        check_error(json!({"num_ctx": "big"}), "options.num_ctx");
        check_error(json!({"mirostat": 2}), "options.mirostat");
        check_error(json!({"stop": [1]}), "options.stop");
        check_error(json!([]), "options");
    }
}
