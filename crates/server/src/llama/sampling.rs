//! Sampling in llama.cpp's words.

use crate::fields::{ObjectReader, wrong};
use crate::http_error::HttpError;
use crate::llama::prompt::id;
use crate::wire::{self, Texts};
use api::{EncodeOptions, GrammarSource, SamplingOptions, Service};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The seed that stands for none.
const NO_SEED: i64 = u32::MAX as i64;

/// How to sample.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = LlamaSamplingBody)]
pub(crate) struct LlamaSamplingBody {
    /// Most tokens to generate; -1 and -2 for all that the context has room for.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -2)]
    n_predict: Option<i64>,
    /// Divides the logits; 0 and less take the most likely token.
    #[schema(maximum = 100)]
    temperature: Option<f32>,
    /// Keep the k most likely; 0 or less for all.
    #[serde(default, deserialize_with = "wire::integer")]
    top_k: Option<i64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    #[schema(minimum = 0, maximum = 1)]
    typical_p: Option<f32>,
    #[schema(minimum = 0.01, maximum = 100)]
    repeat_penalty: Option<f32>,
    /// How many of the last tokens the penalties look at; -1 for all.
    #[serde(default, deserialize_with = "wire::integer")]
    #[schema(minimum = -1)]
    repeat_last_n: Option<i64>,
    #[schema(minimum = -100, maximum = 100)]
    presence_penalty: Option<f32>,
    #[schema(minimum = -100, maximum = 100)]
    frequency_penalty: Option<f32>,
    /// -1 draws one.
    #[serde(default, deserialize_with = "wire::integer")]
    seed: Option<i64>,
    /// Strings that end the answer and are not part of it.
    stop: Option<Texts>,
    ignore_eos: Option<bool>,
    /// Pairs of a token, or the text of several, and its bias; or an object of them. False bans.
    logit_bias: Option<Value>,
    /// Alternatives that are told of each token.
    #[serde(default, deserialize_with = "wire::count")]
    #[schema(minimum = 0, maximum = 20)]
    n_probs: Option<usize>,
    /// Not supported.
    grammar: Option<String>,
    /// Not supported.
    json_schema: Option<Value>,
}

/// Samplers that are not built, and the number that switches each off.
const NOT_BUILT: [(&str, f64); 4] =
    [("mirostat", 0.0), ("dry_multiplier", 0.0), ("xtc_probability", 0.0), ("dynatemp_range", 0.0)];

/// Reads the sampling of a request.
pub(crate) fn read(body: &Value, service: &Service) -> Result<SamplingOptions, HttpError> {
    refuse(&ObjectReader::of(body, "")?)?;
    let body: LlamaSamplingBody = wire::read(body)?;
    body.check()?;
    let logit_bias = match &body.logit_bias {
        Some(biases) => logit_bias(biases, service)?,
        None => Vec::new(),
    };
    Ok(SamplingOptions { logit_bias, ..body.sampling() })
}

impl LlamaSamplingBody {
    fn check(&self) -> Result<(), HttpError> {
        let least = [("n_predict", self.n_predict, -2), ("repeat_last_n", self.repeat_last_n, -1)];
        for (name, value, least) in least {
            if let Some(value) = value.filter(|&value| value < least) {
                let message = format!("{name} must be at least {least}, not {value}");
                return Err(HttpError::invalid(name, message));
            }
        }
        if self.grammar.as_ref().is_some_and(|grammar| !grammar.is_empty()) {
            let message = "grammar is not supported in GBNF; json_schema is";
            return Err(HttpError::invalid("grammar", message));
        }
        match &self.json_schema {
            None | Some(Value::Object(_) | Value::Bool(_)) => Ok(()),
            Some(_) => Err(HttpError::invalid("json_schema", "json_schema must be a JSON schema")),
        }
    }

    fn sampling(self) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temperature.map(|temperature| temperature.max(0.0)),
            top_k: self.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            penalty_window: self.repeat_last_n.and_then(|n| usize::try_from(n).ok()),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed.filter(|&seed| seed != -1 && seed != NO_SEED).map(|seed| seed as u64),
            max_tokens: self.n_predict.and_then(|n| usize::try_from(n).ok()),
            stop: self.stop.map(Texts::all).unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs: self.n_probs.filter(|&n| n > 0),
            ..SamplingOptions::default()
        }
    }
}

/// What the answer is held to.
pub(crate) fn grammar(body: &Value) -> Option<GrammarSource> {
    body.get("json_schema").filter(|it| !it.is_null()).cloned().map(GrammarSource::JsonSchema)
}

fn refuse(fields: &ObjectReader<'_>) -> Result<(), HttpError> {
    for (name, off) in NOT_BUILT {
        if fields.value(name).is_some_and(|value| value.as_f64() != Some(off)) {
            return Err(HttpError::invalid(name, format!("{name} is not supported")));
        }
    }
    if fields.flag("post_sampling_probs")? == Some(true) {
        let message = "post_sampling_probs is not supported";
        return Err(HttpError::invalid("post_sampling_probs", message));
    }
    match fields.array("lora")? {
        Some([_, ..]) => Err(HttpError::invalid("lora", "lora is not supported")),
        _ => Ok(()),
    }
}

/// Pairs in an array, or members of an object whose names are ids or texts.
fn logit_bias(biases: &Value, service: &Service) -> Result<Vec<(u32, f32)>, HttpError> {
    let mut list = Vec::new();
    match biases {
        Value::Array(pairs) => {
            for (at, pair) in pairs.iter().enumerate() {
                let path = format!("logit_bias[{at}]");
                let Some([token, bias]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(wrong(&path, "a pair of a token and its bias", pair));
                };
                let bias = number(bias, &path)?;
                list.extend(tokens(token, &path, service)?.into_iter().map(|id| (id, bias)));
            }
        }
        Value::Object(all) => {
            for (token, bias) in all {
                let bias = number(bias, "logit_bias")?;
                let ids = match token.parse() {
                    Ok(id) => vec![id],
                    Err(_) => tokens(&json!(token), "logit_bias", service)?,
                };
                list.extend(ids.into_iter().map(|id| (id, bias)));
            }
        }
        other => return Err(wrong("logit_bias", "an array or an object", other)),
    }
    Ok(list)
}

fn tokens(token: &Value, path: &str, service: &Service) -> Result<Vec<u32>, HttpError> {
    match token {
        Value::String(text) => service
            .tokenize(text, EncodeOptions::default())
            .map_err(|error| HttpError::of(error, path)),
        other => Ok(vec![id(other, path)?]),
    }
}

fn number(bias: &Value, path: &str) -> Result<f32, HttpError> {
    match bias {
        Value::Bool(false) => Ok(f32::NEG_INFINITY),
        Value::Number(number) => Ok(number.as_f64().unwrap_or_default() as f32),
        other => Err(wrong(path, "a number or false for the bias", other)),
    }
}

/// `sampling` as it comes out over the model's own.
pub(crate) fn settings(service: &Service, sampling: &SamplingOptions) -> Value {
    let merged = sampling.over(service.defaults());
    let params = merged.params();
    let count = |count: Option<usize>| count.map_or(json!(-1), |count| json!(count));
    json!({
        "seed": params.seed.unwrap_or(u64::from(u32::MAX)),
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "repeat_last_n": count(params.penalty_window),
        "repeat_penalty": params.repeat_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "stop": merged.stop,
        "n_predict": count(merged.max_tokens),
        "max_tokens": count(merged.max_tokens),
        "ignore_eos": merged.ignore_eos,
        "n_probs": sampling.logprobs.unwrap_or(0),
    })
}
