//! The steps of a request in every protocol: read, prepare on a blocking thread, submit, answer.

use crate::generate::adapters;
use crate::generate::answer::Answer;
use crate::generate::choices::Choices;
use crate::generate::delivery;
use crate::http::app::App;
use crate::http::body;
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use api::{
    ApiError, GrammarSource, InfillRequest, Prepared, Prompt, RequestOptions, SamplingOptions,
    Service, TextRequest,
};
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::Arc;

/// Reads the body and runs `work` with its JSON on a thread that may block. The service is that of
/// the adapters that the body names.
pub(crate) async fn prepare<T: Send + 'static>(
    app: &App,
    body: Body,
    work: impl FnOnce(&Service, &Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let bytes = body::read(body, &app.options).await?;
    let permit =
        Arc::clone(&app.preparing).acquire_owned().await.map_err(|_| HttpError::shutting_down())?;
    let (service, depth) = (app.service.clone(), app.options.json_depth);
    let prepared = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let body = body::json(&bytes, depth)?;
        work(&*adapters::chosen(&service, &body)?, &body)
    });
    prepared.await.map_err(|_| HttpError::internal())?
}

/// As [`prepare`], for requests that are computed with the service of `context`, which becomes that
/// of the adapters that the body names.
pub(crate) async fn prepare_within<T: Send + 'static>(
    context: RequestContext,
    body: Body,
    work: impl FnOnce(&Service, &Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<(RequestContext, T), HttpError> {
    let read = |service: &Service, body: &Value| Ok((service.clone(), work(service, body)?));
    let (service, read) = prepare(&context.app, body, read).await?;
    let app = App { service, ..context.app };
    Ok((RequestContext { app, ..context }, read))
}

/// Tokens of a prompt, also of one that the context does not hold.
pub(crate) fn counted(prepared: Result<Prepared, ApiError>) -> Result<usize, ApiError> {
    match prepared {
        Ok(prepared) => Ok(prepared.prompt().len()),
        Err(ApiError::ContextLength { prompt_tokens, .. }) => Ok(prompt_tokens),
        Err(error) => Err(error),
    }
}

/// Prepares the prompt for the text that fills `gap`.
pub(crate) fn prepare_infill(
    service: &Service,
    gap: &InfillRequest,
    mut sampling: SamplingOptions,
    grammar: Option<GrammarSource>,
) -> Result<Prepared, ApiError> {
    let infill = service.infill(gap)?;
    sampling.stop_ids.extend(infill.stop_ids);
    let prompt = Prompt::Ids(infill.prompt);
    service.prepare_text(&TextRequest { prompt, add_special: false, sampling, grammar })
}

/// How an answer reaches its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As one JSON object.
    Whole,
    /// As one JSON object, with this many of the likeliest choices of each prompt.
    Likeliest(usize),
    /// As a stream of frames.
    Stream,
}

impl Delivery {
    /// A stream, or a whole answer.
    pub fn of(stream: bool) -> Self {
        if stream { Self::Stream } else { Self::Whole }
    }
}

/// An answer that is ready to be computed.
#[derive(Debug)]
pub(crate) struct Generation<A> {
    pub prompts: Vec<Prepared>,
    /// How many answers each prompt gets.
    pub per_prompt: usize,
    pub options: RequestOptions,
    /// The answer's id.
    pub id: String,
    pub answer: A,
    pub delivery: Delivery,
}

/// The reply to a request.
#[derive(Debug)]
pub(crate) enum Reply<A> {
    /// JSON that takes no computation.
    Ready(Value),
    /// An answer of the model.
    Generate(Box<Generation<A>>),
}

/// Reads a request with `read`, computes its answer and responds with it.
pub(crate) async fn generate<A: Answer>(
    context: RequestContext,
    body: Body,
    read: impl FnOnce(&Service, &Value) -> Result<Reply<A>, HttpError> + Send + 'static,
) -> Result<Response, HttpError> {
    let generation = match prepare(&context.app, body, read).await? {
        Reply::Ready(json) => return Ok(Json(json).into_response()),
        Reply::Generate(generation) => generation,
    };
    let Generation { prompts, per_prompt, options, id, answer, delivery } = *generation;
    let choices = Choices::start(&context, &prompts, per_prompt, options, id)?;
    respond(&context.app, choices, answer, delivery).await
}

/// Responds with the answer to `choices`.
pub(crate) async fn respond<A: Answer>(
    app: &App,
    choices: Choices,
    answer: A,
    delivery: Delivery,
) -> Result<Response, HttpError> {
    match delivery {
        Delivery::Whole => delivery::whole(choices, None, answer).await,
        Delivery::Likeliest(keep) => delivery::whole(choices, Some(keep), answer).await,
        Delivery::Stream => {
            let silence = app.options.keep_alive.min(A::MAX_SILENCE);
            Ok(delivery::streamed(choices, answer, silence))
        }
    }
}
