//! The sampling fields that chat and text completions share, in OpenAI's spelling and in those
//! of vLLM and llama.cpp. What this server cannot honour is refused, never dropped.

use crate::fault::Fault;
use crate::fields::{Fields, wrong};
use api::{SamplingOptions, Terms};
use serde_json::Value;

/// Most answers to one request, all its prompts together.
pub(crate) const MOST_CHOICES: usize = 128;

/// Fields that would constrain the answer in a way that is not built.
const CONSTRAINTS: &[&str] = &[
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "structured_outputs",
];

/// Reads everything about sampling but log probabilities, which chat and text ask for differently.
pub(crate) fn read(fields: &Fields<'_>) -> Result<SamplingOptions, Fault> {
    refuse_constraints(fields)?;
    Ok(SamplingOptions {
        temperature: fields.number("temperature")?,
        top_k: switched_off_below_one(fields, "top_k")?,
        top_p: fields.number("top_p")?,
        min_p: fields.number("min_p")?,
        typical_p: fields.first(&["typical_p", "typ_p"], Fields::number)?,
        repeat_penalty: fields.first(&["repetition_penalty", "repeat_penalty"], Fields::number)?,
        presence_penalty: fields.number("presence_penalty")?,
        frequency_penalty: fields.number("frequency_penalty")?,
        penalty_window: window(fields)?,
        logit_bias: logit_bias(fields)?,
        seed: seed(fields)?,
        max_tokens: max_tokens(fields)?,
        min_tokens: fields.count("min_tokens")?,
        stop: stop(fields)?,
        stop_ids: ids(fields, "stop_token_ids")?,
        ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
        logprobs: None,
        prompt_logprobs: None,
    })
}

/// How many answers each prompt gets.
pub(crate) fn choices(fields: &Fields<'_>) -> Result<usize, Fault> {
    match fields.count("n")?.unwrap_or(1) {
        n @ 1..=MOST_CHOICES => Ok(n),
        n => Err(Fault::invalid("n", format!("n must be 1 to {MOST_CHOICES}, not {n}"))),
    }
}

/// Whether the client wants events, and a last one with the usage.
pub(crate) fn stream(fields: &Fields<'_>) -> Result<(bool, bool), Fault> {
    let options = fields.fields("stream_options")?;
    let usage = options.map(|options| options.flag("include_usage")).transpose()?.flatten();
    Ok((fields.flag("stream")?.unwrap_or(false), usage.unwrap_or(false)))
}

/// On what terms the request is computed. `priority` is vLLM's: lower goes first.
pub(crate) fn terms(fields: &Fields<'_>) -> Result<Terms, Fault> {
    let priority = fields.integer("priority")?.unwrap_or(0);
    let priority = i32::try_from(priority)
        .map_err(|_| wrong("priority", "an integer of 32 bits", &priority.into()))?;
    let parse = |text: &str| {
        text.parse()
            .map_err(|error: String| Fault::invalid("speculate", format!("speculate: {error}")))
    };
    let speculate = fields.text("speculate")?.map(parse).transpose()?;
    let tenant = fields.text("user")?.map(str::to_owned);
    Ok(Terms { priority, tenant, speculate, ..Terms::default() })
}

/// The ids in the array `name`.
pub(crate) fn ids(fields: &Fields<'_>, name: &str) -> Result<Vec<u32>, Fault> {
    let path = fields.path(name);
    fields.array(name)?.map_or(Ok(Vec::new()), |values| token_ids(values, &path))
}

/// `values` as token ids.
pub(crate) fn token_ids(values: &[Value], path: &str) -> Result<Vec<u32>, Fault> {
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    values
        .iter()
        .enumerate()
        .map(|(at, value)| {
            id(value).ok_or_else(|| wrong(&format!("{path}[{at}]"), "a token id", value))
        })
        .collect()
}

fn refuse_constraints(fields: &Fields<'_>) -> Result<(), Fault> {
    if let Some(name) = CONSTRAINTS.iter().find(|name| fields.value(name).is_some()) {
        return Err(Fault::invalid(*name, format!("{name} is not supported")));
    }
    let Some(format) = fields.fields("response_format")? else { return Ok(()) };
    match format.text("type")? {
        Some("text") | None => Ok(()),
        Some(other) => {
            let message = format!("response_format of type {other} is not supported");
            Err(Fault::invalid("response_format", message))
        }
    }
}

/// A count for which other servers also take -1 as "off".
fn switched_off_below_one(fields: &Fields<'_>, name: &str) -> Result<Option<usize>, Fault> {
    let off = |value: i64| usize::try_from(value).unwrap_or(0);
    Ok(at_least_minus_one(fields, name)?.map(off))
}

fn window(fields: &Fields<'_>) -> Result<Option<usize>, Fault> {
    let window = fields.first(&["penalty_window", "repeat_last_n"], at_least_minus_one)?;
    Ok(window.and_then(|window| usize::try_from(window).ok()))
}

fn max_tokens(fields: &Fields<'_>) -> Result<Option<usize>, Fault> {
    let names = ["max_completion_tokens", "max_tokens", "n_predict"];
    let most = fields.first(&names, at_least_minus_one)?;
    Ok(most.and_then(|most| usize::try_from(most).ok()))
}

fn at_least_minus_one(fields: &Fields<'_>, name: &str) -> Result<Option<i64>, Fault> {
    match fields.integer(name)? {
        Some(number) if number < -1 => {
            let path = fields.path(name);
            Err(wrong(&path, "an integer of at least 0, or -1 for no limit", &number.into()))
        }
        number => Ok(number),
    }
}

/// -1 draws one, as with llama.cpp; other negative seeds are seeds.
fn seed(fields: &Fields<'_>) -> Result<Option<u64>, Fault> {
    let Some(value) = fields.value("seed") else { return Ok(None) };
    match (value.as_u64(), value.as_i64()) {
        (Some(seed), _) => Ok(Some(seed)),
        (None, Some(-1)) => Ok(None),
        (None, Some(seed)) => Ok(Some(seed as u64)),
        (None, None) => Err(wrong(&fields.path("seed"), "an integer", value)),
    }
}

fn logit_bias(fields: &Fields<'_>) -> Result<Vec<(u32, f32)>, Fault> {
    let Some(biases) = fields.fields("logit_bias")? else { return Ok(Vec::new()) };
    let mut list = Vec::with_capacity(biases.object().len());
    for key in biases.object().keys() {
        let id = key.parse().map_err(|_| {
            Fault::invalid("logit_bias", format!("logit_bias: \"{key}\" is not a token id"))
        })?;
        list.extend(biases.number(key)?.map(|bias| (id, bias)));
    }
    Ok(list)
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, Fault> {
    let one = |value: &Value, path: &str| {
        value.as_str().map(str::to_owned).ok_or_else(|| wrong(path, "a string", value))
    };
    match fields.value("stop") {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) => {
            all.iter().enumerate().map(|(at, value)| one(value, &format!("stop[{at}]"))).collect()
        }
        Some(value @ Value::String(_)) => Ok(vec![one(value, "stop")?]),
        Some(value) => Err(wrong("stop", "a string or an array of strings", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(body: Value) -> Result<SamplingOptions, Fault> {
        read(&Fields::of_body(&body).unwrap())
    }

    fn check_fault(body: Value, param: &str) {
        let fault = options(body.clone()).expect_err(&body.to_string());
        assert_eq!(fault.body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn every_spelling_reaches_its_option() {
        let read = options(json!({
            "temperature": 0.5, "top_k": -1, "top_p": 0.9, "min_p": 0.1, "typ_p": 0.8,
            "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3,
            "repeat_last_n": 64, "logit_bias": {"5": -100, "7": 2.5}, "seed": 42,
            "max_completion_tokens": 9, "max_tokens": 8, "min_tokens": 2, "stop": "x",
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
        check_fault(json!({"temperature": "hot"}), "temperature");
        check_fault(json!({"stop": [1]}), "stop[0]");
        check_fault(json!({"stop": 1}), "stop");
        check_fault(json!({"logit_bias": {"a": 1}}), "logit_bias");
        check_fault(json!({"logit_bias": {"1": "x"}}), "logit_bias.1");
        check_fault(json!({"logit_bias": []}), "logit_bias");
        check_fault(json!({"stop_token_ids": [-1]}), "stop_token_ids[0]");
        check_fault(json!({"seed": 1.5}), "seed");
        check_fault(json!({"max_tokens": -2}), "max_tokens");
        check_fault(json!({"ignore_eos": 1}), "ignore_eos");
    }

    #[test]
    fn constraints_that_cannot_be_kept_are_refused() {
        check_fault(json!({"response_format": {"type": "json_object"}}), "response_format");
        check_fault(json!({"guided_regex": "a+"}), "guided_regex");
        assert!(options(json!({"response_format": {"type": "text"}, "grammar": null})).is_ok());
    }

    #[test]
    fn seeds_fill_64_bits() {
        let seed = |value: Value| options(json!({"seed": value})).unwrap().seed;
        assert_eq!(seed(json!(u64::MAX)), Some(u64::MAX));
        assert_eq!(seed(json!(-2)), Some(u64::MAX - 1));
        assert_eq!(seed(json!(-1)), None);
    }
}
