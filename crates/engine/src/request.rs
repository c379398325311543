//! What a caller asks of the engine and what it hears back. Token ids only: text, stop
//! strings and chat messages are matters of `api`.

use crate::constraint::GrammarRef;
use crate::draft::Speculate;
use crate::embedding_pooler::Embed;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One sequence to generate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Prompt ids; must not be empty.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Most tokens to generate; `None` for all that the context has room for.
    pub max_tokens: Option<usize>,
    /// Stop ids are not chosen before this many tokens were generated.
    pub min_tokens: usize,
    /// Ids that end the generation when chosen. Their token is not reported.
    pub stop_ids: Vec<u32>,
    /// Report the log probability of every generated token and of this many best
    /// alternatives (0 for the chosen token only).
    pub logprobs: Option<usize>,
    /// Report the log probability of every token of the prompt but the first, and of this many best
    /// alternatives. `max_tokens` may be 0 then. Such a prompt is computed whole.
    pub prompt_logprobs: Option<usize>,
    /// Make one vector of the prompt instead of an answer.
    pub embed: Option<Embed>,
    /// Lower goes first; 0 is ordinary.
    pub priority: i32,
    /// On whose behalf: tenants share the machine evenly. 0 is nobody in particular.
    pub tenant: u64,
    /// How the next tokens are guessed; `None` for the engine's own way.
    pub speculate: Option<Speculate>,
    /// Longest time from submission to the end; `None` for the engine's own limit.
    pub timeout: Option<Duration>,
    /// Compute all of it, whatever the cache has.
    pub cold: bool,
    /// What it is called in traces.
    pub name: Option<String>,
    /// Restricts the tokens; stop ids may be chosen exactly where it may end.
    pub constraint: Option<GrammarRef>,
}

impl Request {
    /// Whether something is wanted of the prompt itself, even if nothing is generated.
    pub(crate) fn wants_prompt(&self) -> bool {
        self.prompt_logprobs.is_some() || self.embed.is_some()
    }

    /// Whether nothing is generated.
    pub(crate) fn is_prompt_only(&self) -> bool {
        self.max_tokens == Some(0) || self.embed.is_some()
    }
}

/// Choice of the next token. The samplers run in the order of the fields; a field at its
/// default does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Added to the logits of these ids.
    #[serde(with = "biases")]
    pub logit_bias: Vec<(u32, f32)>,
    /// Logits of ids seen in the window are divided (if positive) or multiplied by this. 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from ids generated in the window. 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from ids generated in the window. 0 is off.
    pub frequency_penalty: f32,
    /// How many of the last tokens the three penalties look at; `None` for all.
    pub penalty_window: Option<usize>,
    /// Keep the k most likely. 0 is off.
    pub top_k: usize,
    /// Keep the locally typical set of this mass. 1 is off.
    pub typical_p: f32,
    /// Keep the smallest set of most likely tokens of at least this mass. 1 is off.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most likely one. 0 is off.
    pub min_p: f32,
    /// Divides the logits; 0 takes the most likely token (ties: the lowest id).
    pub temperature: f32,
    /// Seed of this request's random numbers; `None` for one from the system.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            top_k: 0,
            typical_p: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            temperature: 0.0,
            seed: None,
        }
    }
}

/// What happened to a request, in order: `Admitted`, any number of `PromptLogprobs` and `Prefill`,
/// then `Token`s or one `Embedding`, then exactly one of `Finished`, `TimedOut` and `Failed`, which may also come alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Its computation begins.
    Admitted {
        /// Prompt tokens found in the cache instead of computed.
        cached_tokens: usize,
        /// Seconds it waited.
        queued_s: f64,
    },
    /// `done` of `total` prompt tokens are computed.
    Prefill {
        /// Prompt tokens computed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// Log probabilities of tokens of the prompt, as the request asked for.
    PromptLogprobs {
        /// Which of the prompt's tokens is the first of these; 1 at the beginning, as nothing comes
        /// before the first.
        first: usize,
        /// Consecutive tokens: the id of each, and what it is given after those before it.
        tokens: Vec<(u32, TokenLogprobs)>,
    },
    /// The vector that was made of the prompt.
    Embedding(Vec<f32>),
    /// A generated token.
    Token {
        /// Its id.
        id: u32,
        /// Present if the request asked for log probabilities.
        logprobs: Option<TokenLogprobs>,
    },
    /// The generation ended.
    Finished(Finished),
    /// It took longer than this.
    TimedOut(Duration),
    /// The generation broke; the text says why.
    Failed(String),
}

/// How a generation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// Tokens computed.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// This stop id was chosen.
    Stop(u32),
    /// `max_tokens` were generated, or the context is full.
    Length,
    /// The constraint allows nothing more.
    Complete,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, the stop id not counted.
    pub completion_tokens: usize,
    /// Prompt tokens found in the cache instead of computed.
    pub cached_tokens: usize,
    /// Tokens guessed by speculation.
    pub drafted_tokens: usize,
    /// Of these, the ones that the model agreed with.
    pub accepted_tokens: usize,
}

/// Wall-clock times of one request, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Waiting to be admitted.
    pub queued_s: f64,
    /// From admission to the first token's logits.
    pub prefill_s: f64,
    /// From the first token's logits to the end.
    pub decode_s: f64,
}

/// Natural log probabilities, from the unchanged logits of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token itself.
    pub logprob: f32,
    /// The most likely ids, best first.
    pub top: Vec<(u32, f32)>,
}

/// Biases as text, since JSON has no infinity.
mod biases {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        let text = |(id, bias): &(u32, f32)| (*id, bias.to_string());
        biases.iter().map(text).collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
        let number = |(id, bias): (u32, String)| match bias.parse() {
            Ok(bias) => Ok((id, bias)),
            Err(_) => Err(D::Error::custom(format!("expected a number as bias, found {bias:?}"))),
        };
        Vec::deserialize(from)?.into_iter().map(number).collect()
    }
}

/// Far more than any logit, far less than the largest f32.
const MAX_BIAS: f32 = 1e6;

/// A part of a request that an error is about. Each protocol has its own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The prompt.
    Prompt,
    /// What the answer must match.
    Constraint,
    /// A parameter, by the name that most protocols have for it.
    Parameter(&'static str),
}

/// The range of a sampling parameter, both ends included.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Name of the parameter.
    pub name: &'static str,
    /// Least value.
    pub low: f64,
    /// Greatest value.
    pub high: f64,
    value: fn(&SamplingParams) -> f32,
}

impl SamplingParams {
    /// The ranges of all parameters that have one.
    pub const BOUNDS: [Bounds; 7] = [
        Bounds { name: "temperature", low: 0.0, high: 100.0, value: |it| it.temperature },
        Bounds { name: "top_p", low: 0.0, high: 1.0, value: |it| it.top_p },
        Bounds { name: "min_p", low: 0.0, high: 1.0, value: |it| it.min_p },
        Bounds { name: "typical_p", low: 0.0, high: 1.0, value: |it| it.typical_p },
        Bounds { name: "repeat_penalty", low: 0.01, high: 100.0, value: |it| it.repeat_penalty },
        Bounds {
            name: "presence_penalty",
            low: -100.0,
            high: 100.0,
            value: |it| it.presence_penalty,
        },
        Bounds {
            name: "frequency_penalty",
            low: -100.0,
            high: 100.0,
            value: |it| it.frequency_penalty,
        },
    ];

    /// The range of the parameter `name`, if it has one.
    pub fn bounds(name: &str) -> Option<Bounds> {
        Self::BOUNDS.into_iter().find(|bounds| bounds.name == name)
    }

    /// Checks every parameter for a model of `vocab_size` tokens.
    ///
    /// # Errors
    /// The parameter that is out of its range, with a message that begins with its name.
    pub fn check(&self, vocab_size: usize) -> Result<(), (Field, String)> {
        for Bounds { name, low, high, value } in Self::BOUNDS {
            let value = value(self);
            if !(low as f32..=high as f32).contains(&value) {
                let message = format!("{name} must be between {low} and {high}, not {value}");
                return Err((Field::Parameter(name), message));
            }
        }
        let biases = self.logit_bias.iter().try_for_each(|&bias| check_bias(bias, vocab_size));
        biases.map_err(|message| (Field::Parameter("logit_bias"), message))
    }
}

fn check_bias((id, bias): (u32, f32), vocab_size: usize) -> Result<(), String> {
    if id as usize >= vocab_size {
        return Err(format!("logit_bias names token id {id} of {vocab_size}"));
    }
    // Minus infinity bans an id; numbers near the other one would leave no probabilities.
    if bias.abs() <= MAX_BIAS || bias == f32::NEG_INFINITY {
        return Ok(());
    }
    Err(format!(
        "logit_bias of token id {id} must be between -{MAX_BIAS} and {MAX_BIAS} or minus infinity, \
         not {bias}"
    ))
}
