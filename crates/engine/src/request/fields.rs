//! Requests to the engine and their events. Token ids only: `api` handles text, stop strings and
//! chat messages.

use crate::observe::outcome::Outcome;
use crate::request::answer_record::AnswerRecord;
use crate::request::constraint::GrammarRef;
use crate::request::embed::Embed;
use crate::request::speculate::Speculate;
use backend::AdapterSet;
use sched::CacheLookup;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum number of marks of a request.
pub const MAX_MARKS: usize = 8;

/// A request for one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Token ids of the prompt; must not be empty.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Maximum number of tokens to generate; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Number of tokens before which no stop id is chosen.
    pub min_tokens: usize,
    /// Ids that end the generation when chosen. They are not reported as tokens.
    pub stop_ids: Vec<u32>,
    /// Number of best alternatives whose log probabilities are reported with that of every
    /// generated token (0 for the chosen token only); `None` for no log probabilities.
    pub logprobs: Option<usize>,
    /// Whether these are of the probabilities that generated tokens were drawn with, after all
    /// samplers, instead of the model's. Tokens that could not be drawn are no alternatives.
    pub sampled_logprobs: bool,
    /// As `logprobs`, for every token of the prompt but the first. `max_tokens` may be 0 then. Such
    /// a prompt is computed whole, unless the first ones are not of interest.
    pub prompt_logprobs: Option<usize>,
    /// Index of the first token of the prompt that `prompt_logprobs` is about, below the prompt's
    /// length; 0 is as 1. The rows before it need no outputs, and may be found in the prefix cache.
    pub prompt_logprobs_from: usize,
    /// Reports the logits of every token of the prompt instead of an answer. Such a prompt is
    /// computed whole.
    pub logits: bool,
    /// Computes an embedding of the prompt instead of an answer.
    pub embed: Option<Embed>,
    /// Type of each token of the prompt, in models with types: that of a query, or of a document.
    /// Empty where all are 0.
    pub types: Vec<u32>,
    /// Priority: lower numbers go first; 0 is the default.
    pub priority: i32,
    /// The tenant of the request; tenants share the machine evenly. 0 for no particular tenant.
    pub tenant: u64,
    /// The user among the tenant's, who share the tenant's part evenly. 0 for no particular user.
    pub user: u64,
    /// The part of the prefix cache that the request uses. Requests with the same number find each
    /// other's prefixes, and no others; zero is the common part.
    pub space: [u8; 16],
    /// The adapters that the sequence is computed with, and that its part of the prefix cache
    /// belongs to; `None` for the adapters of the model.
    pub adapters: Option<AdapterSet>,
    /// Positions of the prompt, in tokens from its start, from which later prompts are likely to
    /// continue with other tokens: where messages end. They ascend, are above 0 and below the
    /// prompt's length, and are at most [`MAX_MARKS`]. A model that keeps states snapshots them
    /// there. Marks do not change the answer.
    pub marks: Vec<usize>,
    /// How tokens are drafted; `None` for the engine's default.
    pub speculate: Option<Speculate>,
    /// Maximum number of tokens drafted per step; `None` for that of `speculate`.
    pub max_drafted: Option<usize>,
    /// The answer that the caller expects, from which tokens are drafted; empty if none is known.
    pub prediction: Vec<u32>,
    /// Maximum time from submission to the end; `None` for the engine's default.
    pub timeout: Option<Duration>,
    /// Whether the whole prompt is computed, without the prefix cache.
    pub cold: bool,
    /// Name in traces.
    pub name: Option<String>,
    /// Constrains the tokens; stop ids may be chosen exactly where the constraint may end.
    pub constraint: Option<GrammarRef>,
    /// Where the logits of the answer are recorded, if they are.
    pub record: Option<AnswerRecord>,
}

impl Request {
    /// Whether the request needs outputs of the prompt itself, even if nothing is generated.
    pub(crate) fn wants_prompt(&self) -> bool {
        self.prompt_logprobs.is_some() || self.has_no_answer()
    }

    /// Tokens at the beginning of the prompt whose rows need no outputs.
    pub(crate) fn known(&self) -> usize {
        self.prompt_logprobs.map_or(0, |_| self.prompt_logprobs_from.saturating_sub(1))
    }

    /// Number of tokens to generate if `room` more fit into the context.
    pub(crate) fn budget(&self, room: usize) -> usize {
        let max_tokens = if self.has_no_answer() { Some(0) } else { self.max_tokens };
        max_tokens.unwrap_or(room).min(room)
    }

    /// Whether nothing is generated.
    pub(crate) fn is_prompt_only(&self) -> bool {
        self.max_tokens == Some(0) || self.has_no_answer()
    }

    /// Whether outputs of the prompt are requested instead of an answer.
    pub(crate) fn has_no_answer(&self) -> bool {
        self.embed.is_some() || self.logits
    }
}

/// Parameters of sampling. The samplers run in the order of the fields; a field at its default does
/// nothing. A trace that was written before a field existed is read with its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// Biases added to the logits of these ids.
    #[serde(with = "biases")]
    pub logit_bias: Vec<(u32, f32)>,
    /// Divisor (of positive) or factor (of negative logits) of ids seen in the window. 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from ids generated in the window. 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from ids generated in the window. 0 is off.
    pub frequency_penalty: f32,
    /// Number of last tokens that the three penalties consider; `None` for all.
    pub penalty_window: Option<usize>,
    /// Keeps the k most likely tokens. 0 is off.
    pub top_k: usize,
    /// Keeps the locally typical set of this mass. 1 is off.
    pub typical_p: f32,
    /// Keeps the smallest set of most likely tokens of at least this mass. 1 is off.
    pub top_p: f32,
    /// Drops tokens less likely than this share of the most likely one. 0 is off.
    pub min_p: f32,
    /// Divides the logits; 0 takes the most likely token (ties: the lowest id).
    pub temperature: f32,
    /// Seed of the random numbers; `None` for one from the system.
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

/// An event of a request. In order: `Admitted`, any number of `PromptLogprobs`, `Logits` and
/// `Prefill`, then `Token`s or one `Embedding`, then exactly one `Finished`, which may also come
/// alone. A led sequence has any number of `Logits` or `HiddenStates` and one `Pushed` for each
/// push, and `Finished` only if it does not end by its caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request was admitted.
    Admitted {
        /// What the cache held of the prompt.
        lookup: CacheLookup,
        /// Seconds in the queue.
        queued_s: f64,
    },
    /// `done` of `total` prompt tokens are computed.
    Prefill {
        /// Prompt tokens computed so far.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// Log probabilities of prompt tokens, as requested.
    PromptLogprobs {
        /// Index of the first of these tokens in the prompt; at least 1, as nothing precedes token
        /// 0.
        first: usize,
        /// Ids and log probabilities of consecutive tokens.
        tokens: Vec<(u32, TokenLogprobs)>,
    },
    /// The logits of the prompt tokens that follow those of the event before, one row of the
    /// model's `vocab_size` after the other, as requested.
    Logits(Vec<f32>),
    /// The hidden states of the tokens of a led sequence that follow those of the event before, one
    /// row of the model's `hidden_size` after the other.
    HiddenStates(Vec<f32>),
    /// All tokens of a led sequence are computed: it waits for its caller.
    Pushed,
    /// The embedding of the prompt.
    Embedding(Vec<f32>),
    /// A generated token.
    Token {
        /// The id.
        id: u32,
        /// Present if requested.
        logprobs: Option<TokenLogprobs>,
    },
    /// The request ended.
    Finished(Finished),
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// Token counts.
    pub usage: Usage,
    /// Times.
    pub timings: Timings,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Generated tokens, without a stop id.
    pub completion_tokens: usize,
    /// Prompt tokens found in the cache.
    pub cached_tokens: usize,
    /// Drafted tokens that were verified.
    pub drafted_tokens: usize,
    /// Drafted tokens that were accepted.
    pub accepted_tokens: usize,
}

/// Wall-clock times of one request, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// From submission to admission.
    pub queued_s: f64,
    /// From admission to the first token's logits.
    pub prefill_s: f64,
    /// From the first token's logits to the end.
    pub decode_s: f64,
}

/// Natural log probabilities: from the model's unmodified logits, or after all samplers where the
/// request sets `sampled_logprobs`.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Log probability of the token itself.
    pub logprob: f32,
    /// The most likely ids and their log probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// Serialises biases as text, since JSON has no infinity.
mod biases {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes biases as texts.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        let text = |(id, bias): &(u32, f32)| (*id, bias.to_string());
        biases.iter().map(text).collect::<Vec<_>>().serialize(to)
    }

    /// Reads biases from texts.
    ///
    /// # Errors
    /// If a bias is not a number, and those of the deserializer.
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
    pub const BOUNDS: &[Bounds] = &[
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
        Self::BOUNDS.iter().find(|bounds| bounds.name == name).copied()
    }

    /// Checks every parameter for a model of `vocab_size` tokens.
    ///
    /// # Errors
    /// The parameter that is out of its range, with a message that begins with its name.
    pub fn check(&self, vocab_size: usize) -> Result<(), (Field, String)> {
        for &Bounds { name, low, high, value } in Self::BOUNDS {
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
