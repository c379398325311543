//! Members that chat and generation share: `options`, which is sampling in Ollama's words, `format`
//! and `think`.

use crate::generate::sampling::{SamplingRules, sampling_schema};
use crate::generate::think::Think;
use crate::http::error::HttpError;
use crate::http::wire::{self, Texts};
use crate::protocols::warnings::Warnings;
use api::{SamplingOptions, Service};
use serde::Deserialize;
use serde_json::{Map, Value};
use text::GrammarSource;
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

/// How to sample, as JSON.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Options(Value);

sampling_schema!(
    Options,
    "Options",
    RULES,
    Float,
    OllamaMembers,
    "How to sample. Options that say how a model is loaded, such as `num_gpu`, change nothing and\n\
     are named in `warnings`."
);

/// The options that only this protocol has.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename = "Options")]
struct OllamaMembers {
    /// Strings that end the answer and are not part of it.
    stop: Option<Texts>,
    /// The context is what the server was started with; a larger one is named in `warnings`.
    num_ctx: Option<i64>,
}

/// The sampling that `options` ask for.
pub(crate) fn sampling(options: Option<&Options>) -> Result<SamplingOptions, HttpError> {
    let Some(Options(options)) = options else { return Ok(SamplingOptions::default()) };
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
        match self.num_ctx {
            Some(size @ ..0) => {
                let problem = format!("must be at least 0, not {size}");
                Err(HttpError::member("options.num_ctx", problem))
            }
            _ => Ok(()),
        }
    }
}

/// Options that change nothing, and what a warning says of them.
const UNUSED: [(&str, &str); 13] = [
    ("embedding_only", IS_LOADED),
    ("f16_kv", IS_LOADED),
    ("logits_all", IS_LOADED),
    ("low_vram", IS_LOADED),
    ("main_gpu", IS_LOADED),
    ("num_batch", IS_LOADED),
    ("num_gpu", IS_LOADED),
    ("num_keep", "a prompt that is too long is refused, not cut"),
    ("num_thread", IS_LOADED),
    ("numa", IS_LOADED),
    ("use_mlock", IS_LOADED),
    ("use_mmap", IS_LOADED),
    ("vocab_only", IS_LOADED),
];
const IS_LOADED: &str = "how a model is loaded is decided when the server starts";

/// Members of the body that change nothing, and what a warning says of them.
const UNUSED_OF_BODY: [(&str, &str); 2] = [
    ("shift", "an answer ends where the context does"),
    ("truncate", "a prompt that is too long is refused, not cut"),
];

/// Warns of members and `options` of a body that change nothing, where prompts and answers have
/// `context` tokens.
pub(crate) fn warnings(body: &Value, context: usize) -> Warnings {
    let mut warnings = Warnings::default();
    warnings.add_given(body, &UNUSED_OF_BODY);
    let given = &body["options"];
    warnings.add_given(given, &UNUSED);
    if given.get("num_ctx").and_then(Value::as_u64).is_some_and(|size| size > context as u64) {
        warnings.add("num_ctx", &format!("the server has a context of {context} tokens"));
    }
    if given.get("penalize_newline") == Some(&Value::Bool(false)) {
        warnings.add("penalize_newline", "penalties are those of other tokens");
    }
    warnings
}

/// What the answer is held to: `"json"` or a JSON schema. An empty string says nothing.
pub(crate) fn grammar(format: Option<&Value>) -> Result<Option<GrammarSource>, HttpError> {
    match format {
        None => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) if name == "json" => Ok(Some(GrammarSource::JsonObject)),
        Some(schema @ Value::Object(_)) => Ok(Some(GrammarSource::LooseSchema(schema.clone()))),
        Some(_) => Err(HttpError::member("format", "must be \"json\" or a JSON schema")),
    }
}

/// The template variables that carry `think`.
pub(crate) fn think_kwargs(think: Option<Think>) -> Map<String, Value> {
    think.map(Think::kwargs).unwrap_or_default()
}

/// Refuses thinking where the model does not.
pub(crate) fn check_think(think: Option<Think>, service: &Service) -> Result<(), HttpError> {
    match think {
        Some(think) if think.is_on() && !service.reasons() => {
            let message = format!("{} does not support thinking", service.info().name);
            Err(HttpError::invalid("think", message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sampling(options: Option<&Value>) -> Result<SamplingOptions, HttpError> {
        super::sampling(options.cloned().map(Options).as_ref())
    }

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
            "num_ctx": 8192, "num_gpu": 99, "unheard_of": {}, "mirostat": 0, "tfs_z": 1.0,
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
        let expected = SamplingOptions { top_k, random_seed: true, ..SamplingOptions::default() };
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
        check_error(json!({"tfs_z": 0.5}), "options.tfs_z");
        check_error(json!({"stop": [1]}), "options.stop");
        check_error(json!([]), "options");
    }
}
