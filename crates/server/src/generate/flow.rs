//! The way of a request through every protocol: read, prepare off the reactor, submit, answer.

use crate::generate::answer::Answer;
use crate::generate::choices::{Choices, RequestNames};
use crate::generate::delivery;
use crate::http::app::App;
use crate::http::body;
use crate::http::error::HttpError;
use api::{ApiError, Prepared, RequestOptions, Service};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;

/// Reads the body and lets `work` make requests of it on a thread where it may take its time.
pub(crate) async fn prepare<T: Send + 'static>(
    app: &App,
    body: Body,
    work: impl FnOnce(&Service, Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let bytes = body::read(body, &app.options).await?;
    let broken = |_| HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error");
    let permit =
        Arc::clone(&app.preparing).acquire_owned().await.map_err(|_| HttpError::shutting_down())?;
    let service = app.service.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&service, body::json(&bytes)?)
    });
    prepared.await.map_err(broken)?
}

/// Tokens of a prompt, also of one that the context does not hold.
pub(crate) fn counted(prepared: Result<Prepared, ApiError>) -> Result<usize, ApiError> {
    match prepared {
        Ok(prepared) => Ok(prepared.prompt().len()),
        Err(ApiError::ContextLength { prompt_tokens, .. }) => Ok(prompt_tokens),
        Err(error) => Err(error),
    }
}

/// Submits every prompt `n` times.
pub(crate) fn start(
    app: &App,
    prompts: &[Prepared],
    n: usize,
    names: RequestNames,
    options: &RequestOptions,
) -> Result<Choices, HttpError> {
    let (wanted, queue) = (prompts.len() * n, app.service.queue());
    if wanted > queue {
        // To try again would be of no use.
        let message = format!("{wanted} answers at once do not fit into the queue of {queue}");
        return Err(HttpError::invalid("n", message));
    }
    Choices::start(prompts, n, names, options, app).map_err(|error| HttpError::of(error, "prompt"))
}

/// Answers as a stream or at once.
pub(crate) async fn respond(
    app: &App,
    choices: Choices,
    answer: impl Answer,
    stream: bool,
) -> Result<Response, HttpError> {
    if stream {
        return Ok(delivery::streamed(choices, answer, app.options.keep_alive));
    }
    delivery::whole(choices, answer).await
}
