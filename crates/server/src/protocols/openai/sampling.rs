//! The sampling members that chat and text completions share, in OpenAI's spelling and in those
//! of vLLM and llama.cpp. Their bounds are checked in the precision of the document, which states
//! the same ones.

use crate::generate::samplers;
use crate::generate::sampling::{SamplingRules, sampling_schema};
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::wire::{self, FromBody};
use crate::protocols::unsupported::{self, Unsupported, is_off, is_zero};
use api::{MAX_BIASES, SamplingOptions};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::ToSchema;

const RULES: SamplingRules = SamplingRules {
    path: "",
    members: &[
        ("temperature", "Divides the logits; 0 takes the most likely token."),
        ("top_p", "Keep the smallest set of most likely tokens of at least this mass."),
        ("top_k", "Keep the k most likely; 0 or -1 for all."),
        ("min_p", "Drop tokens less likely than this share of the most likely one."),
        ("typical_p", "Keep the locally typical set of this mass."),
        ("typ_p", "As `typical_p`."),
        ("repetition_penalty", "Divides or multiplies the logits of tokens that came up."),
        ("repeat_penalty", "As `repetition_penalty`."),
        ("presence_penalty", "Subtracted once from tokens that were generated."),
        ("frequency_penalty", "Subtracted from generated tokens as often as they were."),
        ("penalty_window", "How many of the last tokens penalties look at; -1 for all."),
        ("repeat_last_n", "As `penalty_window`."),
        ("logit_bias", ""),
        (
            "seed",
            "Equal seeds give equal answers; -1 draws one. With several choices each has the next \
             seed.",
        ),
        (
            "max_completion_tokens",
            "Most tokens of an answer, its reasoning included; -1 for all that the context has \
             room for.",
        ),
        ("max_tokens", "As `max_completion_tokens`."),
        ("n_predict", "As `max_completion_tokens`."),
    ],
    least_top_k: Some(-1),
    least_tokens: -1,
    clamps_temperature: false,
};

/// Everything about sampling but log probabilities, which chat and text ask for differently.
#[derive(Debug)]
pub(crate) struct ChatSampling(pub SamplingOptions);

sampling_schema!(
    ChatSampling,
    "SamplingBody",
    RULES,
    Double,
    OpenAiMembers,
    "How tokens are chosen, and when the answer ends. What is not given is as the model's makers\n\
     want it."
);

/// The members that only these protocols have.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct OpenAiMembers {
    /// Added to the logits of these token ids.
    logit_bias: Option<BTreeMap<String, Option<f64>>>,
    /// The answer does not end by itself before this many tokens.
    min_tokens: Option<usize>,
    /// Texts that end the answer and are not part of it: one, or up to 16.
    stop: Option<Stop>,
    /// The text of `stop` that ends the answer is part of it; false by default; as in vLLM.
    include_stop_str_in_output: Option<bool>,
    /// Token ids that end the answer.
    #[schema(max_items = 1024)]
    stop_token_ids: Option<Vec<u32>>,
    /// Do not end where the model does.
    ignore_eos: Option<bool>,
}

/// Members of vLLM and llama.cpp that change the prompt or the answer and are not supported.
const REFUSED: [Unsupported; 10] = [
    ("truncate_prompt_tokens", is_off),
    ("prompt_logprobs", is_off),
    ("use_beam_search", is_off),
    ("bad_words", is_off),
    ("allowed_token_ids", is_off),
    ("logits_processors", is_off),
    ("prompt_embeds", is_off),
    ("repetition_detection", is_off),
    ("n_probs", is_zero),
    ("grammar_lazy", is_off),
];

described! {
    /// One text or several.
    value Stop as "SamplingStop" = (String) | (Vec<String>);
}

impl FromBody for ChatSampling {
    fn from_body(body: &Value) -> Result<Self, HttpError> {
        unsupported::refuse(body, &REFUSED)?;
        // Many are not read one by one.
        let biases_given = body.get("logit_bias").and_then(Value::as_object).map_or(0, Map::len);
        if biases_given > MAX_BIASES {
            let problem = format!("holds {biases_given} ids; {MAX_BIASES} are allowed");
            return Err(HttpError::member("logit_bias", problem));
        }
        let own: OpenAiMembers = wire::read(body)?;
        let options = SamplingOptions {
            logit_bias: biases(own.logit_bias.unwrap_or_default())?,
            min_tokens: own.min_tokens,
            stop: stop(own.stop.as_deref())?,
            include_stop: own.include_stop_str_in_output.unwrap_or(false),
            stop_ids: own.stop_token_ids.unwrap_or_default(),
            ignore_eos: own.ignore_eos.unwrap_or(false),
            ..RULES.read::<f64>(body)?
        };
        samplers::apply(body, options).map(Self)
    }
}

fn biases(biases: BTreeMap<String, Option<f64>>) -> Result<Vec<(u32, f32)>, HttpError> {
    let mut list = Vec::with_capacity(biases.len());
    for (key, bias) in biases {
        let id = key
            .parse()
            .map_err(|_| HttpError::at("logit_bias", format!("{key:?} is not a token id")))?;
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

    fn read(body: &Value) -> Result<SamplingOptions, HttpError> {
        wire::read::<ChatSampling>(body).map(|sampling| sampling.0)
    }

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
            "include_stop_str_in_output": true, "stop_token_ids": [3], "ignore_eos": true, "unheard_of": {"a": 1},
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
            random_seed: false,
            max_tokens: Some(9),
            min_tokens: Some(2),
            stop: vec!["x".into()],
            include_stop: true,
            stop_ids: vec![3],
            ignore_eos: true,
            logprobs: None,
            sampled_logprobs: false,
            prompt_logprobs: None,
            prompt_logprobs_from: None,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn wrong_types_name_the_field() {
        check_error(json!({"temperature": "hot"}), "temperature");
        check_error(json!({"mirostat": 2}), "mirostat");
        check_error(json!({"xtc_probability": 0.5}), "xtc_probability");
        assert!(read(&json!({"mirostat": 0, "dry_multiplier": 0.0})).is_ok());
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
        check_error(json!({"include_stop_str_in_output": 1}), "include_stop_str_in_output");
    }

    #[test]
    fn what_would_change_the_answer_is_refused_unless_it_is_off() {
        for (name, off, on) in [
            ("tfs_z", json!(1), json!(0.9)),
            ("mirostat", json!(0), json!(2)),
            ("dry_multiplier", json!(0.0), json!(0.8)),
            ("xtc_probability", json!(null), json!("x")),
            ("dynatemp_range", json!(0), json!(1)),
            ("top_n_sigma", json!(-1), json!(1.0)),
            ("adaptive_target", json!(-1.0), json!(0.0)),
            ("truncate_prompt_tokens", json!(null), json!(-1)),
            ("use_beam_search", json!(false), json!(true)),
            ("bad_words", json!([]), json!(["x"])),
            ("n_probs", json!(0), json!(2)),
            ("grammar_lazy", json!(false), json!(true)),
        ] {
            assert!(read(&json!({ name: off })).is_ok(), "{name}");
            check_error(json!({ name: on }), name);
        }
    }

    #[test]
    fn bounds_of_the_document_are_those_that_hold() {
        let schema = json!(ChatSampling::schema());
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
        assert!(read(&json!({"seed": -1})).unwrap().random_seed);
        assert!(!read(&json!({})).unwrap().random_seed);
    }
}
