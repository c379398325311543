//! The request of `POST /completion`.

use crate::generate::flow::{Delivery, Generation, Reply};
use crate::http::error::HttpError;
use crate::http::random;
use crate::http::wire;
use crate::protocols::llama::answer::{AnswerView, CompletionAnswer};
use crate::protocols::llama::sampling::LlamaSampling;
use crate::protocols::llama::{prompt, sampling};
use api::{GrammarSource, Prepared, Prompt, RequestOptions, SamplingOptions, Service, TextRequest};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Most answers to one request.
const MAX_CHOICES: usize = 128;
/// Most members of an answer that may be named; each is looked for in every answer.
const MAX_FIELDS: usize = 100;

/// Texts to continue. All three are read from one object.
#[derive(Debug, ToSchema)]
#[schema(as = LlamaCompletionBody)]
pub(crate) struct CompletionBody {
    #[serde(flatten)]
    _prompt: PromptBody,
    #[serde(flatten)]
    _how: AnswerOptions,
    #[serde(flatten)]
    _sampling: LlamaSampling,
}

/// What is to be continued.
#[derive(Debug, Deserialize, ToSchema)]
struct PromptBody {
    /// A string, an array of token ids, an array of both, or an array of several prompts.
    prompt: Option<Value>,
}

/// How to answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = How)]
pub(crate) struct AnswerOptions {
    stream: Option<bool>,
    /// Answers to each prompt.
    #[serde(default, deserialize_with = "wire::count")]
    #[schema(minimum = 1, maximum = 128)]
    n_cmpl: Option<usize>,
    /// Tell the ids of the answer.
    return_tokens: Option<bool>,
    /// Tell the times with every piece.
    timings_per_token: Option<bool>,
    /// The members of the answer that are wanted; `a/b` is member `b` of `a`.
    #[schema(max_items = 100)]
    response_fields: Option<Vec<String>>,
    /// No slot is chosen.
    #[serde(default, rename = "id_slot", deserialize_with = "wire::integer")]
    _id_slot: Option<i64>,
    /// Every prompt finds what is cached of it.
    #[serde(rename = "cache_prompt")]
    _cache_prompt: Option<bool>,
}

/// Reads and prepares a request.
pub(crate) fn read(service: &Service, body: &Value) -> Result<Reply<CompletionAnswer>, HttpError> {
    let (PromptBody { prompt }, how) = (wire::read(body)?, wire::read(body)?);
    let prompt = prompt.ok_or_else(|| HttpError::invalid("prompt", "prompt is missing"))?;
    let sampling = sampling::read(body, service)?;
    call(service, prompt::prompts(&prompt, service)?, how, sampling, sampling::grammar(body))
}

/// Prepares these prompts.
pub(crate) fn call(
    service: &Service,
    prompts: Vec<Vec<u32>>,
    how: AnswerOptions,
    sampling: SamplingOptions,
    grammar: Option<GrammarSource>,
) -> Result<Reply<CompletionAnswer>, HttpError> {
    let choices = how.n_cmpl.unwrap_or(1);
    let wanted = prompts.len().saturating_mul(choices);
    if !(1..=MAX_CHOICES).contains(&wanted) {
        let message = format!("1 to {MAX_CHOICES} answers may be asked for, not {wanted}");
        return Err(HttpError::invalid("n_cmpl", message));
    }
    let fields = how.response_fields.unwrap_or_default();
    if fields.len() > MAX_FIELDS {
        let found = fields.len();
        let message = format!("response_fields must name at most {MAX_FIELDS}, not {found}");
        return Err(HttpError::invalid("response_fields", message));
    }
    let stream = how.stream.unwrap_or(false);
    let unseen = sampling.max_tokens == Some(0);
    let tokens = stream || how.return_tokens.unwrap_or(false);
    let look = AnswerView {
        tokens,
        probabilities: sampling.logprobs.is_some(),
        timings: how.timings_per_token.unwrap_or(false),
        unseen,
        fields,
        settings: sampling::settings(service, &sampling),
        prompts: prompts.iter().map(Vec::len).collect(),
    };
    let max_tokens = sampling.max_tokens.map(|most| most.max(1));
    // Ids come with log probabilities only.
    let logprobs = sampling.logprobs.or(tokens.then_some(0));
    let sampling = SamplingOptions { max_tokens, logprobs, ..sampling };
    let prepare = |ids| {
        let (prompt, sampling) = (Prompt::Ids(ids), sampling.clone());
        let grammar = grammar.clone();
        service.prepare_text(&TextRequest { prompt, add_special: false, sampling, grammar })
    };
    let prompts: Result<Vec<Prepared>, _> = prompts.into_iter().map(prepare).collect();
    let prompts = prompts.map_err(|error| HttpError::of(error, "prompt"))?;
    let generation = Generation {
        prompts,
        per_prompt: choices,
        options: RequestOptions::default(),
        id: random::id("completion-"),
        answer: CompletionAnswer::new(&service.info().name, look, choices),
        delivery: Delivery::of(stream),
    };
    Ok(generation.into())
}
