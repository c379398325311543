//! llama.cpp's `samplers`: the samplers that apply. Their order is always that of this server.

use crate::http::error::HttpError;
use crate::http::fields::wrong;
use api::SamplingOptions;
use serde_json::Value;

/// Names of a sampler, the letter that stands for it, and what leaves it out.
type Sampler = (&'static [&'static str], char, fn(&mut SamplingOptions));

const SAMPLERS: [Sampler; 6] = [
    (&["penalties"], 'e', |options| {
        options.repeat_penalty = Some(1.0);
        (options.presence_penalty, options.frequency_penalty) = (Some(0.0), Some(0.0));
    }),
    (&["top_k", "top-k"], 'k', |options| options.top_k = Some(0)),
    (&["typ_p", "typ-p", "typical_p", "typical-p", "typical"], 'y', |options| {
        options.typical_p = Some(1.0);
    }),
    (&["top_p", "top-p", "nucleus"], 'p', |options| options.top_p = Some(1.0)),
    (&["min_p", "min-p"], 'm', |options| options.min_p = Some(0.0)),
    (&["temperature", "temp"], 't', |options| {
        // A temperature of 0 asks for the likeliest token, whichever samplers there are.
        if options.temperature != Some(0.0) {
            options.temperature = Some(1.0);
        }
    }),
];

/// `options` without the samplers that `samplers` of a body does not name.
pub(crate) fn apply(
    body: &Value,
    mut options: SamplingOptions,
) -> Result<SamplingOptions, HttpError> {
    let is_named: Box<dyn Fn(&Sampler) -> bool> = match body.get("samplers") {
        None | Some(Value::Null) => return Ok(options),
        Some(Value::String(letters)) => Box::new(|(_, letter, _)| letters.contains(*letter)),
        Some(Value::Array(given)) => Box::new(|(names, ..)| {
            given.iter().filter_map(Value::as_str).any(|name| names.contains(&name))
        }),
        Some(other) => return Err(wrong("samplers", "an array of names, or letters", other)),
    };
    for sampler in SAMPLERS.iter().filter(|sampler| !is_named(sampler)) {
        sampler.2(&mut options);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samplers_that_are_not_named_are_left_out() {
        let check = |samplers: Value, expected: (f32, usize, f32, f32)| {
            let asked = SamplingOptions {
                temperature: Some(0.5),
                top_k: Some(7),
                top_p: Some(0.9),
                repeat_penalty: Some(1.5),
                ..SamplingOptions::default()
            };
            let params = apply(&json!({ "samplers": samplers }), asked).unwrap().params();
            let found = (params.temperature, params.top_k, params.top_p, params.repeat_penalty);
            assert_eq!(found, expected, "{samplers}");
        };
        check(json!(null), (0.5, 7, 0.9, 1.5));
        check(json!(["temperature"]), (0.5, 0, 1.0, 1.0));
        check(json!(["top-k", "top_p", "infill"]), (1.0, 7, 0.9, 1.0));
        check(json!("ek"), (1.0, 7, 1.0, 1.5));
        check(json!([]), (1.0, 0, 1.0, 1.0));
        let greedy = SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() };
        let greedy = apply(&json!({"samplers": ["top_k"]}), greedy).unwrap();
        assert_eq!(greedy.temperature, Some(0.0));
        assert!(apply(&json!({"samplers": 3}), SamplingOptions::default()).is_err());
    }
}
