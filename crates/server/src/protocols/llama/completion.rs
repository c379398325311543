//! `POST /completion` and `POST /infill`.

use crate::generate::constraint::ConstraintField;
use crate::generate::flow::{self, Delivery, Generation, Reply};
use crate::generate::mixed_prompts;
use crate::generate::options::Telemetry;
use crate::generate::speculation;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::random;
use crate::http::request::RequestContext;
use crate::http::slots::SlotTable;
use crate::http::wire::{self, body};
use crate::protocols::llama::answer::{
    AnswerPiece, AnswerView, BoundSlot, CompletionAnswer, Completions, ShownPrompt,
};
use crate::protocols::llama::sampling::{self, LlamaSampling};
use api::{InfillRequest, Prepared, Prompt, RequestOptions, SamplingOptions, Service, TextRequest};
use axum::body::Body;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// Most answers to one request.
const MAX_CHOICES: usize = 128;
/// Most members of an answer that may be named; each is looked for in every answer.
const MAX_FIELDS: usize = 100;

/// The continuation of one or several texts.
#[utoipa::path(
    post, path = "/completion", tag = "llama.cpp", request_body = CompletionBody,
    responses(
        (status = 200, content(
            (Completions = "application/json"), (AnswerPiece = "text/event-stream"))),
        (status = 400)
    )
)]
pub(crate) async fn complete(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    let read = |model: &ModelUse, body: &Value| {
        let (service, slots) = (&model.service, model.loaded.slots.clone());
        let CompletionBody { prompt: PromptBody { prompt, .. }, how, sampling } = wire::read(body)?;
        let prompt = prompt.ok_or_else(|| wire::missing("prompt"))?;
        let sampling = sampling.options(service)?;
        let prompts = mixed_prompts::read(&prompt, "prompt")?.into_iter();
        let prompts = prompts.map(|prompt| prompt.ids(service)).collect::<Result<_, _>>()?;
        prepare(service, prompts, how, sampling, body, slots)
    };
    flow::when_ready::<CompletionAnswer, _>(context, body, |context, named| {
        flow::answered(context, named, read)
    })
    .await
}

/// What is missing in the middle of a text.
#[utoipa::path(
    post, path = "/infill", tag = "llama.cpp", request_body = InfillBody,
    responses(
        (status = 200, content(
            (Completions = "application/json"), (AnswerPiece = "text/event-stream"))),
        (status = 400), (status = 501)
    )
)]
pub(crate) async fn fill(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    flow::generate(context, body, read_gap).await
}

body! {
    /// Texts to continue. All three are read from one object.
    #[schema(as = LlamaCompletionBody)]
    struct CompletionBody {
        prompt: PromptBody,
        how: AnswerOptions,
        sampling: LlamaSampling,
    }
}

/// What is to be continued.
#[derive(Debug, Deserialize, ToSchema)]
struct PromptBody {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// A string, an array of token ids, an array of both, or an array of several prompts.
    prompt: Option<Value>,
}

/// How to answer.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = How)]
struct AnswerOptions {
    stream: Option<bool>,
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 128)]
    n_cmpl: Option<usize>,
    /// Return the ids of the answer.
    return_tokens: Option<bool>,
    /// Report the times with every piece of a stream.
    timings_per_token: Option<bool>,
    /// Report how much of the prompt is computed, in pieces of a stream before its first text.
    return_progress: Option<bool>,
    /// The only members that the answer has; `a/b` is member `b` of `a`, under the name `a/b`.
    #[schema(max_items = 100)]
    response_fields: Option<Vec<String>>,
    /// How the next tokens are drafted, as `--speculate` says it; an extension.
    speculate: Option<String>,
    /// Most tokens drafted in a step; -1 for no bound.
    #[serde(rename = "speculative.n_max")]
    #[schema(minimum = -1)]
    n_max: Option<i64>,
    /// The slot whose tokens these become, for actions on it.
    id_slot: Option<i64>,
    /// Every prompt finds what is cached of it.
    #[serde(rename = "cache_prompt")]
    _cache_prompt: Option<bool>,
}

body! {
    /// A text with a gap. All three are read from one object.
    struct InfillBody {
        gap: GapBody,
        how: AnswerOptions,
        sampling: LlamaSampling,
    }
}

/// What stands around the gap.
#[derive(Debug, Deserialize, ToSchema)]
struct GapBody {
    /// What stands before the gap.
    input_prefix: Option<String>,
    /// What stands after it.
    input_suffix: Option<String>,
    /// Other files that may help.
    input_extra: Option<Vec<Extra>>,
    /// What the filling begins with.
    prompt: Option<String>,
}

/// Another file.
#[derive(Debug, Deserialize, ToSchema)]
struct Extra {
    filename: Option<String>,
    text: String,
}

/// Reads and prepares a request for what fills a gap.
fn read_gap(service: &Service, body: &Value) -> Result<Reply<CompletionAnswer>, HttpError> {
    if !service.fills() {
        let message = "the model has no tokens that mark a gap to be filled in";
        return Err(HttpError::not_supported(message));
    }
    let InfillBody { gap, how, sampling } = wire::read(body)?;
    let (sampling, constraint) = sampling.options(service)?;
    let extra = gap.input_extra.unwrap_or_default().into_iter();
    let infill = service.infill(&InfillRequest {
        prefix: gap.input_prefix.unwrap_or_default(),
        suffix: gap.input_suffix.unwrap_or_default(),
        files: extra.map(|one| (one.filename.unwrap_or_default(), one.text)).collect(),
        opening: gap.prompt.unwrap_or_default(),
    });
    let infill = infill.map_err(|error| HttpError::of(error, "input_prefix"))?;
    let sampling = SamplingOptions { stop_ids: infill.stop_ids, ..sampling };
    prepare(service, vec![infill.prompt], how, (sampling, constraint), body, None)
}

/// Prepares these prompts, with what `body` says of the answer.
fn prepare(
    service: &Service,
    prompts: Vec<Vec<u32>>,
    how: AnswerOptions,
    (sampling, constraint): (SamplingOptions, Option<ConstraintField>),
    body: &Value,
    slots: Option<Arc<SlotTable>>,
) -> Result<Reply<CompletionAnswer>, HttpError> {
    let choices = how.n_cmpl.unwrap_or(1);
    let wanted = prompts.len().saturating_mul(choices);
    if !(1..=MAX_CHOICES).contains(&wanted) {
        let message = format!("1 to {MAX_CHOICES} answers may be asked for, not {wanted}");
        return Err(HttpError::invalid("n_cmpl", message));
    }
    let fields = how.response_fields.unwrap_or_default();
    if fields.len() > MAX_FIELDS {
        let problem = format!("must name at most {MAX_FIELDS}, not {}", fields.len());
        return Err(HttpError::member("response_fields", problem));
    }
    let stream = how.stream.unwrap_or(false);
    let unseen = sampling.max_tokens == Some(0);
    let tokens = stream || how.return_tokens.unwrap_or(false);
    let telemetry = Telemetry {
        timings: stream && how.timings_per_token == Some(true),
        progress: stream && how.return_progress == Some(true),
        usage: false,
    };
    let shown = |ids: &Vec<u32>| {
        let text = service.tokenizer().decode(ids, false);
        ShownPrompt { text, tokens: ids.len() }
    };
    let view = AnswerView {
        tokens,
        probabilities: sampling.logprobs.is_some(),
        sampled: sampling.sampled_logprobs,
        telemetry,
        unseen,
        fields,
        settings: sampling::settings(service, &sampling),
        prompts: prompts.iter().map(shown).collect(),
        warnings: sampling::warnings(body),
    };
    let max_tokens = sampling.max_tokens.map(|most| most.max(1));
    let bound = slots.zip(how.id_slot).filter(|_| choices == 1);
    let bound = bound.and_then(|(slots, id)| BoundSlot::new(slots, id, &prompts));
    // Ids come with log probabilities only.
    let logprobs = sampling.logprobs.or((tokens || bound.is_some()).then_some(0));
    let sampling = SamplingOptions { max_tokens, logprobs, ..sampling };
    let prepare = |ids| {
        let (prompt, sampling) = (Prompt::Ids(ids), sampling.clone());
        let grammar = constraint.as_ref().map(|constraint| constraint.source.clone());
        service.prepare_text(&TextRequest { prompt, add_special: false, sampling, grammar })
    };
    let prompts: Result<Vec<Prepared>, _> = prompts.into_iter().map(prepare).collect();
    let mut prompts =
        prompts.map_err(|error| ConstraintField::error(constraint.as_ref(), error, "prompt"))?;
    if bound.as_ref().is_some_and(BoundSlot::begin) {
        prompts.iter_mut().for_each(Prepared::compute_anew);
    }
    let mut options = RequestOptions { progress: telemetry.any(), ..RequestOptions::default() };
    speculation::apply(how.speculate.as_deref(), how.n_max, &mut options)?;
    Ok(Reply::Generate(Box::new(Generation {
        prompts,
        per_prompt: choices,
        options,
        id: random::id("completion-"),
        answer: CompletionAnswer::new(&service.info().name, view, choices, bound),
        delivery: Delivery::of(stream),
    })))
}
