//! Sampling options as a session keeps them.

use api::SamplingOptions;
use serde::{Deserialize, Serialize};

/// The fields of [`SamplingOptions`] that a conversation has; unset ones are left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "SamplingOptions", default, deny_unknown_fields)]
pub(super) struct SamplingFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    typical_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    penalty_window: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty", with = "biases")]
    logit_bias: Vec<(u32, f32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    random_seed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_ids: Vec<u32>,
    #[serde(skip)]
    include_stop: bool,
    ignore_eos: bool,
    #[serde(skip)]
    logprobs: Option<usize>,
    #[serde(skip)]
    sampled_logprobs: bool,
    #[serde(skip)]
    prompt_logprobs: Option<usize>,
    #[serde(skip)]
    prompt_logprobs_from: Option<usize>,
}

/// Biases as JSON, whose numbers are finite: infinite ones are the strings `inf` and `-inf`.
mod biases {
    use serde::{
        Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _,
    };

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum JsonBias {
        Finite(f32),
        Infinite(String),
    }

    pub fn serialize<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        if biases.iter().any(|(_, bias)| bias.is_nan()) {
            return Err(S::Error::custom("logit_bias: expected numbers, found NaN"));
        }
        to.collect_seq(biases.iter().map(|&(id, bias)| match bias.is_infinite() {
            true => (id, JsonBias::Infinite(bias.to_string())),
            false => (id, JsonBias::Finite(bias)),
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
        let bias = |(id, bias)| match bias {
            JsonBias::Finite(bias) => Ok((id, bias)),
            JsonBias::Infinite(name) => match name.as_str() {
                "inf" => Ok((id, f32::INFINITY)),
                "-inf" => Ok((id, f32::NEG_INFINITY)),
                _ => Err(D::Error::custom(format!("expected inf or -inf, found {name:?}"))),
            },
        };
        Vec::deserialize(from)?.into_iter().map(bias).collect()
    }
}

/// What was `given` now, with what the session has `kept` for the rest.
pub(super) fn merged(given: SamplingOptions, kept: &SamplingOptions) -> SamplingOptions {
    let stop_ids = if given.stop_ids.is_empty() { &kept.stop_ids } else { &given.stop_ids };
    let (stop_ids, ignore_eos) = (stop_ids.clone(), given.ignore_eos || kept.ignore_eos);
    // A seed that is given ends the drawing of seeds.
    let random_seed = given.random_seed || (kept.random_seed && given.seed.is_none());
    SamplingOptions { stop_ids, ignore_eos, random_seed, ..given.over(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_wins_over_what_was_kept() {
        let kept = SamplingOptions {
            temperature: Some(0.5),
            top_k: Some(3),
            seed: Some(7),
            stop_ids: vec![1],
            ignore_eos: true,
            ..SamplingOptions::default()
        };
        assert_eq!(merged(SamplingOptions::default(), &kept), kept);
        let given = SamplingOptions {
            top_k: Some(0),
            random_seed: true,
            stop_ids: vec![2],
            ..SamplingOptions::default()
        };
        let both = merged(given, &kept);
        assert_eq!((both.temperature, both.top_k, both.seed), (Some(0.5), Some(0), None));
        assert_eq!((&both.stop_ids[..], both.random_seed, both.ignore_eos), (&[2][..], true, true));
        let seeded = SamplingOptions { seed: Some(9), ..SamplingOptions::default() };
        let again = merged(seeded, &both);
        assert_eq!((again.seed, again.random_seed), (Some(9), false));
    }
}
