//! Sampling options of a request, and how they override the defaults of the model.

use crate::error::ApiError;
use engine::SamplingParams;
use formats::GenerationDefaults;
use std::collections::HashSet;

/// Temperature if neither the request nor the model sets one, as in OpenAI's API.
const FALLBACK_TEMPERATURE: f32 = 1.0;
/// Longest stop string in bytes, which bounds the text held back.
const MAX_STOP_BYTES: usize = 1024;
/// Most stop strings of one request.
const MAX_STOPS: usize = 16;
/// Most stop ids, including the model's; each token is compared with all.
const MAX_STOP_IDS: usize = 1024;
/// Most ids with a bias; each token adds all of them.
pub const MAX_BIASES: usize = 4096;
/// Most alternatives reported per token.
const MAX_LOGPROBS: usize = 20;

/// Sampling options of a request or a model; `None` and empty lists are unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: Option<f32>,
    /// Keep the k most likely tokens; 0 for all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of most likely tokens of at least this mass.
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one.
    pub min_p: Option<f32>,
    /// Keep the locally typical set of this mass.
    pub typical_p: Option<f32>,
    /// Divides or multiplies the logits of tokens in the window.
    pub repeat_penalty: Option<f32>,
    /// Subtracted once from tokens generated in the window.
    pub presence_penalty: Option<f32>,
    /// Subtracted per occurrence from tokens generated in the window.
    pub frequency_penalty: Option<f32>,
    /// Number of last tokens that count for penalties; `None` for all.
    pub penalty_window: Option<usize>,
    /// Added to the logits of these ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers; `None` for a random one.
    pub seed: Option<u64>,
    /// Draw a seed, whatever the default says.
    pub random_seed: bool,
    /// Most tokens to generate; `None` for the rest of the context.
    pub max_tokens: Option<usize>,
    /// Stop ids are masked before this many tokens.
    pub min_tokens: Option<usize>,
    /// Strings that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// The string that ends the answer is part of it.
    pub include_stop: bool,
    /// Stop ids in addition to the model's.
    pub stop_ids: Vec<u32>,
    /// Do not stop at the model's stop ids.
    pub ignore_eos: bool,
    /// Report log probabilities, with this many best alternatives.
    pub logprobs: Option<usize>,
    /// Report the log probabilities that tokens were drawn with, after all samplers, instead of
    /// the model's.
    pub sampled_logprobs: bool,
    /// Report log probabilities of the prompt's tokens too, with this many best alternatives;
    /// `max_tokens` may be 0 then.
    pub prompt_logprobs: Option<usize>,
    /// Index of the first token of the prompt that they are reported of; what comes before it may
    /// be found in the prefix cache. `None` for the second one.
    pub prompt_logprobs_from: Option<usize>,
}

impl SamplingOptions {
    /// These options, with `defaults` for unset ones. Biases add up, and so do stop ids, unless
    /// `ignore_eos` drops those of `defaults`.
    pub fn over(&self, defaults: &Self) -> Self {
        let model_ids = if self.ignore_eos { &[][..] } else { &defaults.stop_ids };
        macro_rules! merged {
            ($($field:ident)*) => {
                Self {
                    $($field: self.$field.or(defaults.$field),)*
                    logit_bias: biases(&self.logit_bias, &defaults.logit_bias),
                    stop: either(&self.stop, &defaults.stop),
                    include_stop: self.include_stop,
                    stop_ids: [&self.stop_ids, model_ids].concat(),
                    ignore_eos: self.ignore_eos,
                    seed: self.seed.or(defaults.seed).filter(|_| !self.random_seed),
                    random_seed: self.random_seed,
                    sampled_logprobs: self.sampled_logprobs,
                }
            };
        }
        merged!(
            temperature top_k top_p min_p typical_p repeat_penalty presence_penalty
            frequency_penalty penalty_window max_tokens min_tokens logprobs prompt_logprobs
            prompt_logprobs_from
        )
    }

    /// Converts to the parameters of the engine's sampler.
    pub fn params(&self) -> SamplingParams {
        let off = SamplingParams { temperature: FALLBACK_TEMPERATURE, ..SamplingParams::default() };
        macro_rules! params {
            ($($field:ident)*) => {
                SamplingParams {
                    $($field: self.$field.unwrap_or(off.$field),)*
                    logit_bias: self.logit_bias.clone(),
                    penalty_window: self.penalty_window,
                    seed: self.seed,
                }
            };
        }
        params!(
            temperature top_k top_p min_p typical_p repeat_penalty presence_penalty
            frequency_penalty
        )
    }

    /// Checks the options that the engine does not check.
    ///
    /// # Errors
    /// The option that exceeds its limit.
    pub fn check(&self) -> Result<(), ApiError> {
        self.check_lengths()?;
        check_ids("stop_token_ids", self.stop_ids.len(), MAX_STOP_IDS)?;
        if self.stop.len() > MAX_STOPS {
            let message =
                format!("stop holds {} strings; {MAX_STOPS} are allowed", self.stop.len());
            return Err(ApiError::invalid("stop", message));
        }
        if self.stop.iter().any(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
            let message = format!("a stop string must have 1 to {MAX_STOP_BYTES} bytes");
            return Err(ApiError::invalid("stop", message));
        }
        match self.logprobs.max(self.prompt_logprobs) {
            Some(top) if top > MAX_LOGPROBS => {
                let message =
                    format!("at most {MAX_LOGPROBS} alternatives are reported, not {top}");
                Err(ApiError::invalid("top_logprobs", message))
            }
            _ => Ok(()),
        }
    }

    /// Checks the biases of a request itself: a model may suppress more tokens.
    ///
    /// # Errors
    /// If there are more than the limit.
    pub fn check_biases(&self) -> Result<(), ApiError> {
        check_ids("logit_bias", self.logit_bias.len(), MAX_BIASES)
    }

    fn check_lengths(&self) -> Result<(), ApiError> {
        let Some(most) = self.max_tokens else { return Ok(()) };
        if most == 0 && self.prompt_logprobs.is_none() {
            return Err(ApiError::invalid("max_tokens", "max_tokens must be at least 1"));
        }
        match self.min_tokens {
            Some(least) if least > most => {
                let message = format!("min_tokens is {least}, but max_tokens is {most}");
                Err(ApiError::invalid("min_tokens", message))
            }
            _ => Ok(()),
        }
    }
}

impl From<&GenerationDefaults> for SamplingOptions {
    fn from(defaults: &GenerationDefaults) -> Self {
        let greedy = defaults.do_sample == Some(false);
        Self {
            temperature: if greedy { Some(0.0) } else { defaults.temperature },
            top_k: defaults.top_k,
            top_p: defaults.top_p,
            min_p: defaults.min_p,
            typical_p: defaults.typical_p,
            repeat_penalty: defaults.repetition_penalty,
            max_tokens: defaults.max_new_tokens,
            stop_ids: defaults.eos.clone(),
            logit_bias: defaults.suppressed.iter().map(|&id| (id, f32::NEG_INFINITY)).collect(),
            ..Self::default()
        }
    }
}

fn check_ids(name: &'static str, found: usize, most: usize) -> Result<(), ApiError> {
    if found > most {
        let message = format!("{name} holds {found} ids; {most} are allowed");
        return Err(ApiError::invalid(name, message));
    }
    Ok(())
}

/// The biases `first`, and those of `second` for other ids.
fn biases(first: &[(u32, f32)], second: &[(u32, f32)]) -> Vec<(u32, f32)> {
    let own: HashSet<u32> = first.iter().map(|(id, _)| *id).collect();
    let others = second.iter().filter(|(id, _)| !own.contains(id));
    first.iter().chain(others).copied().collect()
}

fn either<T: Clone>(first: &[T], second: &[T]) -> Vec<T> {
    if first.is_empty() { second.to_vec() } else { first.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Field;

    fn defaults() -> SamplingOptions {
        SamplingOptions {
            temperature: Some(0.7),
            top_k: Some(20),
            stop_ids: vec![1, 2],
            ..Default::default()
        }
    }

    #[test]
    fn requests_win_over_the_defaults_of_the_model() {
        let asked = SamplingOptions { temperature: Some(0.0), ..Default::default() };
        let merged = asked.over(&defaults()).params();
        assert_eq!((merged.temperature, merged.top_k, merged.top_p), (0.0, 20, 1.0));
    }

    #[test]
    fn nothing_said_anywhere_samples_at_temperature_one() {
        let params = SamplingOptions::default().params();
        assert_eq!(params, SamplingParams { temperature: 1.0, ..Default::default() });
    }

    #[test]
    fn tokens_that_a_model_never_generates_stay_out_unless_a_request_names_them() {
        let model = GenerationDefaults { suppressed: vec![1, 2], ..Default::default() };
        let asked = SamplingOptions { logit_bias: vec![(2, 0.5)], ..Default::default() };
        let merged = asked.over(&SamplingOptions::from(&model)).logit_bias;
        assert_eq!(merged, [(2, 0.5), (1, f32::NEG_INFINITY)]);
    }

    #[test]
    fn stop_ids_add_up_unless_eos_is_ignored() {
        let asked = SamplingOptions { stop_ids: vec![9], ..Default::default() };
        assert_eq!(asked.over(&defaults()).stop_ids, [9, 1, 2]);
        let asked = SamplingOptions { ignore_eos: true, ..asked };
        assert_eq!(asked.over(&defaults()).stop_ids, [9]);
    }

    #[test]
    fn a_request_for_a_random_seed_has_none() {
        let defaults = SamplingOptions { seed: Some(42), ..defaults() };
        assert_eq!(SamplingOptions::default().over(&defaults).seed, Some(42));
        let asked = SamplingOptions { random_seed: true, ..SamplingOptions::default() };
        assert_eq!(asked.over(&defaults).seed, None);
    }

    #[test]
    fn models_that_do_not_sample_are_greedy_by_default() {
        let file = GenerationDefaults {
            do_sample: Some(false),
            temperature: Some(0.6),
            eos: vec![7],
            ..Default::default()
        };
        let defaults = SamplingOptions::from(&file);
        assert_eq!((defaults.temperature, defaults.stop_ids), (Some(0.0), vec![7]));
    }

    fn check_param(options: SamplingOptions, expected: &'static str) {
        match options.check_biases().and_then(|()| options.check()) {
            Err(ApiError::Invalid { field, .. }) => assert_eq!(field, Field::Parameter(expected)),
            other => panic!("{other:?} is not about {expected}"),
        }
    }

    #[test]
    fn impossible_limits_name_their_field() {
        let none = SamplingOptions::default;
        check_param(SamplingOptions { max_tokens: Some(0), ..none() }, "max_tokens");
        let crossed = SamplingOptions { max_tokens: Some(2), min_tokens: Some(3), ..none() };
        check_param(crossed, "min_tokens");
        check_param(SamplingOptions { stop: vec![String::new()], ..none() }, "stop");
        check_param(SamplingOptions { stop: vec!["x".repeat(1025)], ..none() }, "stop");
        check_param(SamplingOptions { stop: vec!["x".into(); 17], ..none() }, "stop");
        check_param(SamplingOptions { logprobs: Some(21), ..none() }, "top_logprobs");
        check_param(SamplingOptions { prompt_logprobs: Some(21), ..none() }, "top_logprobs");
        check_param(SamplingOptions { stop_ids: vec![1; 1025], ..none() }, "stop_token_ids");
        check_param(SamplingOptions { logit_bias: vec![(1, 0.1); 4097], ..none() }, "logit_bias");
        assert_eq!(none().check(), Ok(()));
        let prompt_only =
            SamplingOptions { max_tokens: Some(0), prompt_logprobs: Some(0), ..none() };
        assert_eq!(prompt_only.check(), Ok(()));
    }
}
