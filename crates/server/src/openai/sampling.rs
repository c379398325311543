//! The sampling members that chat and text completions share, in OpenAI's spelling and in those
//! of vLLM and llama.cpp. Their bounds are checked in the precision of the document, which states
//! the same ones.

use crate::http_error::HttpError;
use crate::wire;
use api::SamplingOptions;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How tokens are chosen, and when the answer ends. What is not given is as the model's makers
/// want it.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingBody {
    /// Divides the logits; 0 takes the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f64>,
    /// Keep the smallest set of most likely tokens of at least this mass.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    /// Keep the k most likely; 0 or -1 for all.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    top_k: Option<i64>,
    /// Drop tokens less likely than this share of the most likely one.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f64>,
    /// Keep the locally typical set of this mass.
    #[schema(minimum = 0, maximum = 1)]
    typical_p: Option<f64>,
    /// As `typical_p`.
    #[schema(minimum = 0, maximum = 1)]
    typ_p: Option<f64>,
    /// Divides or multiplies the logits of tokens that came up.
    #[schema(minimum = 0.01, maximum = 100)]
    repetition_penalty: Option<f64>,
    /// As `repetition_penalty`.
    #[schema(minimum = 0.01, maximum = 100)]
    repeat_penalty: Option<f64>,
    /// Subtracted once from tokens that were generated.
    #[schema(minimum = -100, maximum = 100)]
    presence_penalty: Option<f64>,
    /// Subtracted from generated tokens as often as they were.
    #[schema(minimum = -100, maximum = 100)]
    frequency_penalty: Option<f64>,
    /// How many of the last tokens penalties look at; -1 for all.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    penalty_window: Option<i64>,
    /// As `penalty_window`.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    repeat_last_n: Option<i64>,
    /// Added to the logits of these token ids.
    logit_bias: Option<BTreeMap<String, Option<f64>>>,
    /// Equal seeds give equal answers; -1 draws one. With several choices each has the next seed.
    #[serde(default, deserialize_with = "wire::bits")]
    #[schema(value_type = Option<i64>)]
    seed: Option<i128>,
    /// Most tokens of an answer, its reasoning included; -1 for all that the context has room for.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    max_completion_tokens: Option<i64>,
    /// As `max_completion_tokens`.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    max_tokens: Option<i64>,
    /// As `max_completion_tokens`.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    n_predict: Option<i64>,
    /// The answer does not end by itself before this many tokens.
    #[serde(default, deserialize_with = "wire::count")]
    min_tokens: Option<usize>,
    /// Texts that end the answer and are not part of it: one, or up to 16.
    #[schema(value_type = Option<Stop>)]
    stop: Option<Value>,
    /// Token ids that end the answer.
    #[schema(max_items = 1024)]
    stop_token_ids: Option<Vec<u32>>,
    /// Do not end where the model does.
    ignore_eos: Option<bool>,
}

/// One text or several.
#[derive(Debug, ToSchema)]
#[schema(as = SamplingStop)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is read by hand")]
enum Stop {
    One(String),
    Several(Vec<String>),
}

/// Reads everything about sampling but log probabilities, which chat and text ask for differently.
pub(crate) fn read(body: &Value) -> Result<SamplingOptions, HttpError> {
    wire::read::<SamplingBody>(body)?.options()
}

impl SamplingBody {
    fn options(self) -> Result<SamplingOptions, HttpError> {
        let share = |name, value| within(name, value, 0.0, 1.0);
        let typical = [("typical_p", self.typical_p), ("typ_p", self.typ_p)];
        let repeat = [
            ("repetition_penalty", self.repetition_penalty),
            ("repeat_penalty", self.repeat_penalty),
        ];
        let window =
            [("penalty_window", self.penalty_window), ("repeat_last_n", self.repeat_last_n)];
        let most = [
            ("max_completion_tokens", self.max_completion_tokens),
            ("max_tokens", self.max_tokens),
            ("n_predict", self.n_predict),
        ];
        Ok(SamplingOptions {
            temperature: within("temperature", self.temperature, 0.0, 100.0)?,
            // Negative numbers switch it off, as 0 does.
            top_k: unlimited("top_k", self.top_k)?.map(|k| k.unwrap_or(0)),
            top_p: share("top_p", self.top_p)?,
            min_p: share("min_p", self.min_p)?,
            typical_p: first(typical, share)?,
            repeat_penalty: first(repeat, |name, value| within(name, value, 0.01, 100.0))?,
            presence_penalty: within("presence_penalty", self.presence_penalty, -100.0, 100.0)?,
            frequency_penalty: within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?,
            penalty_window: first(window, unlimited)?.flatten(),
            logit_bias: biases(self.logit_bias.unwrap_or_default())?,
            seed: self.seed.filter(|&seed| seed != -1).map(|seed| seed as u64),
            max_tokens: first(most, unlimited)?.flatten(),
            min_tokens: self.min_tokens,
            stop: stop(self.stop.as_ref())?,
            stop_ids: self.stop_token_ids.unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs: None,
            prompt_logprobs: None,
        })
    }
}

/// A number of at least `low` and at most `high`. The bounds count before it is rounded.
fn within(name: &str, value: Option<f64>, low: f64, high: f64) -> Result<Option<f32>, HttpError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            let message = format!("{name} must be between {low} and {high}, not {value}");
            Err(HttpError::invalid(name, message))
        }
        value => Ok(value.map(|value| value as f32)),
    }
}

/// A count for which -1 says that there is no limit.
fn unlimited(name: &str, value: Option<i64>) -> Result<Option<Option<usize>>, HttpError> {
    match value {
        Some(number) if number < -1 => {
            let message = format!(
                "{name} must be an integer of at least 0, or -1 for no limit, not {number}"
            );
            Err(HttpError::invalid(name, message))
        }
        value => Ok(value.map(|number| usize::try_from(number).ok())),
    }
}

/// The first of several spellings that is present; all of them must be sound.
fn first<T, R, const N: usize>(
    spellings: [(&'static str, Option<T>); N],
    check: impl Fn(&'static str, Option<T>) -> Result<Option<R>, HttpError>,
) -> Result<Option<R>, HttpError> {
    let mut found = None;
    for (name, value) in spellings {
        let value = check(name, value)?;
        found = found.or(value);
    }
    Ok(found)
}

fn biases(biases: BTreeMap<String, Option<f64>>) -> Result<Vec<(u32, f32)>, HttpError> {
    let mut list = Vec::with_capacity(biases.len());
    for (key, bias) in biases {
        let id = key.parse().map_err(|_| {
            HttpError::invalid("logit_bias", format!("logit_bias: {key:?} is not a token id"))
        })?;
        list.extend(bias.map(|bias| (id, bias as f32)));
    }
    Ok(list)
}

fn stop(stop: Option<&Value>) -> Result<Vec<String>, HttpError> {
    match stop {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(several) => wire::part(several, "stop"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use utoipa::PartialSchema;

    fn check_error(body: Value, param: &str) {
        let error = read(&body).expect_err(&body.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn every_spelling_reaches_its_option() {
        let read = read(&json!({
            "temperature": 0.5, "top_k": -1, "top_p": 0.9, "min_p": 0.1, "typ_p": 0.8,
            "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3,
            "repeat_last_n": 64, "logit_bias": {"5": -100, "7": 2.5}, "seed": 42,
            "max_completion_tokens": 9, "max_tokens": 8, "min_tokens": 2.0, "stop": "x",
            "stop_token_ids": [3], "ignore_eos": true, "unheard_of": {"a": 1},
        }))
        .unwrap();
        let expected = SamplingOptions {
            temperature: Some(0.5),
            top_k: Some(0),
            top_p: Some(0.9),
            min_p: Some(0.1),
            typical_p: Some(0.8),
            repeat_penalty: Some(1.1),
            presence_penalty: Some(0.2),
            frequency_penalty: Some(0.3),
            penalty_window: Some(64),
            logit_bias: vec![(5, -100.0), (7, 2.5)],
            seed: Some(42),
            max_tokens: Some(9),
            min_tokens: Some(2),
            stop: vec!["x".into()],
            stop_ids: vec![3],
            ignore_eos: true,
            logprobs: None,
            prompt_logprobs: None,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn wrong_types_name_the_field() {
        check_error(json!({"temperature": "hot"}), "temperature");
        check_error(json!({"stop": [1]}), "stop[0]");
        check_error(json!({"stop": 1}), "stop");
        check_error(json!({"logit_bias": {"a": 1}}), "logit_bias");
        check_error(json!({"logit_bias": {"1": "x"}}), "logit_bias.1");
        check_error(json!({"logit_bias": []}), "logit_bias");
        check_error(json!({"stop_token_ids": [-1]}), "stop_token_ids[0]");
        check_error(json!({"seed": 1.5}), "seed");
        check_error(json!({"max_tokens": -2}), "max_tokens");
        check_error(json!({"max_completion_tokens": 5, "max_tokens": -2}), "max_tokens");
        check_error(json!({"ignore_eos": 1}), "ignore_eos");
    }

    #[test]
    fn bounds_of_the_document_are_those_that_hold() {
        let schema = json!(SamplingBody::schema());
        let mut bounded = 0;
        for (name, property) in schema["properties"].as_object().unwrap() {
            for (bound, beyond) in [("minimum", -1e-9), ("maximum", 1e-9)] {
                let Some(bound) = property[bound].as_f64() else { continue };
                let whole = property["type"].to_string().contains("integer");
                let beyond = if whole { json!(bound as i64 - 1) } else { json!(bound + beyond) };
                assert!(read(&json!({name: bound})).is_ok(), "{name} = {bound}");
                check_error(json!({name: beyond}), name);
                bounded += 1;
            }
        }
        assert!(bounded >= 22, "{bounded} bounds in {schema}");
    }

    #[test]
    fn seeds_fill_64_bits() {
        let seed = |value: Value| read(&json!({"seed": value})).unwrap().seed;
        assert_eq!(seed(json!(u64::MAX)), Some(u64::MAX));
        assert_eq!(seed(json!(-2)), Some(u64::MAX - 1));
        assert_eq!(seed(json!(3.0)), Some(3));
        assert_eq!(seed(json!(-1)), None);
    }
}
