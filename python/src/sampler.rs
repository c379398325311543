//! The engine's sampler for logits of the caller.

use crate::tokens::{floats, ids};
use api::SamplingOptions;
use engine::{TokenSampler, TokenSet};
use pyo3::exceptions::PyValueError;
use pyo3::{PyErr, PyResult, Python, pyclass, pymethods};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The engine's sampler.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Sampler {
    sampler: Mutex<TokenSampler>,
    vocab_size: usize,
    terms: String,
}

impl Sampler {
    /// A sampler with `options`, which are JSON, over `defaults`.
    pub fn new(options: &str, defaults: &SamplingOptions, vocab_size: usize) -> PyResult<Self> {
        let options = read(options)?.over(defaults);
        options.check().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let sampler = TokenSampler::new(options.params(), vocab_size);
        let sampler = sampler.map_err(|(_, message)| PyValueError::new_err(message))?;
        let terms = json!({
            "stop_ids": options.stop_ids,
            "stop": options.stop,
            "include_stop": options.include_stop,
            "min_tokens": options.min_tokens,
            "max_tokens": options.max_tokens,
        });
        Ok(Self { sampler: Mutex::new(sampler), vocab_size, terms: terms.to_string() })
    }
}

#[pymethods]
impl Sampler {
    /// The token after `ids`, of which the first `prompt` are the prompt, from its logits.
    fn choose(&self, py: Python<'_>, tokens: &[u8], prompt: usize, logits: &[u8]) -> PyResult<u32> {
        let wrong = |problem: String| -> PyErr { PyValueError::new_err(problem) };
        let (tokens, mut logits) = (ids(tokens)?, floats(logits)?);
        if logits.len() != self.vocab_size {
            let (expected, found) = (self.vocab_size, logits.len());
            return Err(wrong(format!("logits: expected {expected} numbers, found {found}")));
        }
        if prompt > tokens.len() {
            let found = tokens.len();
            return Err(wrong(format!("prompt: expected at most {found} tokens, found {prompt}")));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= self.vocab_size) {
            let size = self.vocab_size;
            return Err(wrong(format!("token ids: expected numbers below {size}, found {id}")));
        }
        py.detach(|| {
            let allowed = allowed(&mut logits).map_err(wrong)?;
            let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
            let chosen = sampler.choose(&tokens, prompt, &logits, allowed.as_ref());
            chosen.map_err(|error| wrong(error.to_string()))
        })
    }

    /// When an answer ends, as JSON.
    fn terms(&self) -> &str {
        &self.terms
    }
}

/// The tokens whose logits are not minus infinity, where some are; these become finite numbers.
/// Others than numbers and minus infinity are an error.
fn allowed(logits: &mut [f32]) -> Result<Option<TokenSet>, String> {
    if logits.iter().all(|logit| logit.is_finite()) {
        return Ok(None);
    }
    let mut set = TokenSet::new(logits.len());
    for (id, logit) in (0..).zip(logits) {
        if logit.is_finite() {
            set.insert(id);
        } else if *logit == f32::NEG_INFINITY {
            *logit = f32::MIN;
        } else {
            return Err(format!(
                "logits: expected numbers or minus infinity, found {logit} at {id}"
            ));
        }
    }
    Ok(Some(set))
}

/// The options of sampling with the names of requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SamplingBody {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    typ_p: Option<f32>,
    repetition_penalty: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    penalty_window: Option<i64>,
    repeat_last_n: Option<i64>,
    logit_bias: BTreeMap<String, Option<f32>>,
    seed: Option<i64>,
    max_completion_tokens: Option<i64>,
    max_tokens: Option<i64>,
    n_predict: Option<i64>,
    min_tokens: Option<usize>,
    stop: Option<Value>,
    include_stop_str_in_output: bool,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
}

fn read(options: &str) -> PyResult<SamplingOptions> {
    let wrong = |problem: String| -> PyErr { PyValueError::new_err(problem) };
    let body: SamplingBody =
        serde_json::from_str(options).map_err(|error| wrong(error.to_string()))?;
    let id = |(id, bias): (String, Option<f32>)| match id.parse::<u32>() {
        Ok(id) => Ok(bias.map(|bias| (id, bias))),
        Err(_) => Err(wrong(format!("logit_bias: expected token ids, found {id:?}"))),
    };
    let biases = body.logit_bias.into_iter().map(id).collect::<PyResult<Vec<_>>>()?;
    let stop = match body.stop {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text],
        Some(several) => serde_json::from_value(several)
            .map_err(|_| wrong("stop: expected a text or a list of texts".to_owned()))?,
    };
    let most = body.max_completion_tokens.or(body.max_tokens).or(body.n_predict);
    Ok(SamplingOptions {
        temperature: body.temperature,
        top_p: body.top_p,
        // Negative numbers of tokens stand for all of them.
        top_k: body.top_k.map(|k| usize::try_from(k).unwrap_or(0)),
        min_p: body.min_p,
        typical_p: body.typical_p.or(body.typ_p),
        repeat_penalty: body.repetition_penalty.or(body.repeat_penalty),
        presence_penalty: body.presence_penalty,
        frequency_penalty: body.frequency_penalty,
        penalty_window: body.penalty_window.or(body.repeat_last_n).and_then(of_signed),
        logit_bias: biases.into_iter().flatten().collect(),
        seed: body.seed.filter(|seed| *seed != -1).map(i64::cast_unsigned),
        random_seed: body.seed == Some(-1),
        max_tokens: most.and_then(of_signed),
        min_tokens: body.min_tokens,
        stop,
        include_stop: body.include_stop_str_in_output,
        stop_ids: body.stop_token_ids,
        ignore_eos: body.ignore_eos,
        ..SamplingOptions::default()
    })
}

fn of_signed(number: i64) -> Option<usize> {
    usize::try_from(number).ok()
}
