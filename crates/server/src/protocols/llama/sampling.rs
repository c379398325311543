//! Sampling in llama.cpp's words.

use crate::generate::constraint::{ConstraintField, llama_grammar};
use crate::generate::mixed_prompts::id;
use crate::generate::samplers;
use crate::generate::sampling::{SamplingRules, sampling_schema};
use crate::http::error::HttpError;
use crate::http::fields::wrong;
use crate::http::wire::{self, FromBody, Texts};
use crate::protocols::unsupported;
use crate::protocols::warnings::Warnings;
use api::{MAX_BIASES, SamplingOptions, Service};
use serde::Deserialize;
use serde_json::{Value, json};
use text::GrammarSource;
use utoipa::ToSchema;

/// The seed that stands for none.
const NO_SEED: u64 = u32::MAX as u64;

const RULES: SamplingRules = SamplingRules {
    path: "",
    members: &[
        ("n_predict", "Most tokens to generate; -1 and -2 for all that the context has room for."),
        ("temperature", "Divides the logits; 0 and less take the most likely token."),
        ("top_k", "Keep the k most likely; 0 or less for all."),
        ("top_p", "-"),
        ("min_p", "-"),
        ("typical_p", "-"),
        ("repeat_penalty", "-"),
        ("repeat_last_n", "How many of the last tokens the penalties look at; -1 for all."),
        ("presence_penalty", "-"),
        ("frequency_penalty", "-"),
        ("seed", "-1 draws one."),
    ],
    least_top_k: None,
    least_tokens: -2,
    clamps_temperature: true,
};

/// How to sample.
#[derive(Debug)]
pub(crate) struct LlamaSampling {
    own: LlamaMembers,
    shared: SamplingOptions,
}

sampling_schema!(LlamaSampling, "LlamaSamplingBody", RULES, Float, LlamaMembers, "How to sample.");

/// The members that only this protocol has.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct LlamaMembers {
    /// Strings that end the answer and are not part of it.
    stop: Option<Texts>,
    ignore_eos: Option<bool>,
    /// Pairs of a token, or the text of several, and its bias; or an object of them. False bans.
    logit_bias: Option<Value>,
    /// Number of alternatives reported with each token.
    #[schema(minimum = 0, maximum = 20)]
    n_probs: Option<usize>,
    /// Report the probabilities after all samplers instead of the model's log probabilities.
    post_sampling_probs: Option<bool>,
    /// Text of this grammar in GBNF, from the rule `root`; none where it is empty.
    grammar: Option<String>,
    /// A JSON schema that the answer matches.
    json_schema: Option<Value>,
}

impl FromBody for LlamaSampling {
    fn from_body(body: &Value) -> Result<Self, HttpError> {
        let own: LlamaMembers = wire::read(body)?;
        let shared = RULES.read::<f32>(body)?;
        own.check()?;
        unsupported::refuse(body, &[("grammar_lazy", unsupported::is_off)])?;
        Ok(Self { own, shared: samplers::apply(body, shared)? })
    }
}

impl LlamaSampling {
    /// The options for `service`, and what the answer is held to.
    ///
    /// # Errors
    /// If a bias names no token, or the members of the constraint contradict each other.
    pub fn options(
        self,
        service: &Service,
    ) -> Result<(SamplingOptions, Option<ConstraintField>), HttpError> {
        let Self { own, shared } = self;
        let biases = own.logit_bias.as_ref().map(|biases| logit_bias(biases, service));
        let options = SamplingOptions {
            logit_bias: biases.transpose()?.unwrap_or_default(),
            seed: shared.seed.filter(|&seed| seed != NO_SEED),
            random_seed: shared.random_seed || shared.seed == Some(NO_SEED),
            stop: own.stop.map(Texts::all).unwrap_or_default(),
            ignore_eos: own.ignore_eos.unwrap_or(false),
            logprobs: own.n_probs.filter(|&n| n > 0),
            sampled_logprobs: own.post_sampling_probs.unwrap_or(false),
            ..shared
        };
        let of = |field, source| ConstraintField { field, source };
        let schema = own.json_schema.map(|it| of("json_schema", GrammarSource::LooseSchema(it)));
        let grammar = own.grammar.and_then(llama_grammar).map(|it| of("grammar", it));
        Ok((options, schema.or(grammar)))
    }
}

/// Members that change nothing, and what a warning says of them.
const UNUSED: [(&str, &str); 8] = [
    ("min_keep", "samplers keep as few tokens as they say"),
    ("n_discard", KEEPS_ALL),
    ("n_indent", "lines have the indent that the model gives them"),
    ("n_keep", KEEPS_ALL),
    ("speculative.n_min", SPECULATES),
    ("speculative.p_min", SPECULATES),
    ("t_max_predict_ms", "an answer ends by its tokens, not by the time"),
    ("t_max_prompt_ms", "a prompt is computed whole"),
];
const KEEPS_ALL: &str = "a prompt that is too long is refused, not cut";
const SPECULATES: &str = "as many tokens are drafted as make the answer faster";

/// Warns of members that change nothing.
pub(crate) fn warnings(body: &Value) -> Warnings {
    let is_off = |value: &Value| unsupported::is_zero(value) || value.as_f64() == Some(-1.0);
    let mut warnings = Warnings::default();
    warnings.add_given_unless(body, &UNUSED, is_off);
    warnings
}

impl LlamaMembers {
    fn check(&self) -> Result<(), HttpError> {
        let has_grammar = self.grammar.as_ref().is_some_and(|grammar| !grammar.is_empty());
        match &self.json_schema {
            Some(_) if has_grammar => {
                Err(HttpError::member("grammar", "cannot be given together with json_schema"))
            }
            None | Some(Value::Object(_) | Value::Bool(_)) => Ok(()),
            Some(_) => Err(HttpError::member("json_schema", "must be a JSON schema")),
        }
    }
}

/// Pairs in an array, or members of an object whose names are ids or texts.
fn logit_bias(biases: &Value, service: &Service) -> Result<Vec<(u32, f32)>, HttpError> {
    let mut list = Vec::new();
    let mut add = |token: &Value, bias: &Value, path: &str| {
        let bias = match bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            Value::Number(number) => number.as_f64().unwrap_or_default() as f32,
            other => return Err(wrong(path, "a number or false for the bias", other)),
        };
        let found = match token {
            Value::String(text) => {
                let found = service.biased_tokens(text, list.len());
                found.map_err(|error| HttpError::of(error, path))?
            }
            other => vec![id(other, path)?],
        };
        list.extend(found.into_iter().map(|id| (id, bias)));
        Ok(())
    };
    match biases {
        Value::Array(pairs) => {
            // One beside those that are allowed shows that there are too many.
            for (at, pair) in pairs.iter().enumerate().take(MAX_BIASES + 1) {
                let path = format!("logit_bias[{at}]");
                match pair.as_array().map(Vec::as_slice) {
                    Some([token, bias]) => add(token, bias, &path)?,
                    _ => return Err(wrong(&path, "a pair of a token and its bias", pair)),
                }
            }
        }
        Value::Object(all) => {
            for (token, bias) in all.iter().take(MAX_BIASES + 1) {
                let id = token.parse::<u32>().map(Value::from);
                add(&id.unwrap_or_else(|_| json!(token)), bias, "logit_bias")?;
            }
        }
        other => return Err(wrong("logit_bias", "an array or an object", other)),
    }
    Ok(list)
}

/// `sampling` as it comes out over the server's defaults, and samplers of llama.cpp's server that
/// are not built, at the values that switch them off.
pub(crate) fn settings(service: &Service, sampling: &SamplingOptions) -> Value {
    let merged = sampling.over(&service.defaults);
    let params = merged.params();
    let count = |count: Option<usize>| count.map_or(json!(-1), |count| json!(count));
    let neutral = json!({
        "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "top_n_sigma": -1.0,
        "xtc_probability": 0.0, "xtc_threshold": 0.1, "dry_multiplier": 0.0, "dry_base": 1.75,
        "dry_allowed_length": 2, "dry_penalty_last_n": -1, "mirostat": 0, "mirostat_tau": 5.0,
        "mirostat_eta": 0.1, "adaptive_target": -1.0, "adaptive_decay": 0.9, "n_keep": 0,
        "n_discard": 0, "min_keep": 0, "lora": [],
    });
    let own = json!({
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
        "post_sampling_probs": sampling.sampled_logprobs,
        "logit_bias": biases(service, &merged),
    });
    [own, neutral].into_iter().flat_map(|part| part.as_object().cloned()).flatten().collect()
}

/// The biases of a request. Tokens that cannot be chosen have the bias null, and so have the
/// model's end tokens where they are ignored.
fn biases(service: &Service, sampling: &SamplingOptions) -> Value {
    let ends = service.defaults.stop_ids.iter().filter(|_| sampling.ignore_eos);
    let ends = ends.map(|&id| (id, f32::NEG_INFINITY));
    let all = sampling.logit_bias.iter().copied().chain(ends);
    // JSON has no infinity: it is written as null.
    all.map(|(token, bias)| json!({"token": token, "bias": bias})).collect()
}
