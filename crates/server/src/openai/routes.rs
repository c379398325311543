//! The routes of OpenAI's API.

use crate::app::App;
use crate::choices::Names;
use crate::fault::Fault;
use crate::flow::{prepare, respond, start};
use crate::guard::{self, RequestId};
use crate::openai::answer::Heading;
use crate::openai::chat_answer::ChatAnswer;
use crate::openai::completion_answer::CompletionAnswer;
use crate::openai::{chat, completions, models};
use crate::sse;
use api::{Prepared, Prompt, Service, TextRequest};
use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(chat_completions))
        .routes(routes!(text_completions))
        .routes(routes!(model_list))
        .route("/v1/models/{*id}", axum::routing::get(model))
}

/// The models that are served.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI", responses((status = 200)))]
async fn model_list(State(app): State<App>, RawQuery(query): RawQuery) -> Json<Value> {
    Json(models::list(app.service.info(), app.started, query.as_deref()))
}

async fn model(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, Fault> {
    if id == app.service.info().name {
        return Ok(Json(models::one(app.service.info(), app.started)));
    }
    let message = format!("no such model: {id}");
    Err(Fault::request(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

/// The next message of a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "OpenAI", responses((status = 200)))]
async fn chat_completions(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let (call, prompt) = prepare(&app, body, |service, body| {
        let call = chat::read(&body)?;
        let prompt = service.prepare_chat(&call.request);
        Ok((call, prompt.map_err(|error| Fault::of(error, "messages"))?))
    })
    .await?;
    let heading = Heading::new("chatcmpl-", &app.service.info().name);
    let terms = guard::on_behalf(call.terms, &headers);
    let names = Names { request: id, answer: heading.id.clone() };
    let choices = start(&app, &[prompt], call.choices, names, &terms)?;
    let logprobs = call.request.sampling.logprobs.is_some();
    let answer = ChatAnswer::new(heading, call.choices, logprobs, call.stream_usage);
    respond(&app, choices, answer, call.stream).await
}

/// The continuation of a text.
#[utoipa::path(post, path = "/v1/completions", tag = "OpenAI", responses((status = 200)))]
async fn text_completions(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let (call, prompts, echoes) = prepare(&app, body, |service, body| {
        let call = completions::read(&body)?;
        let prompts: Result<Vec<Prepared>, _> =
            call.requests.iter().map(|request| service.prepare_text(request)).collect();
        let prompts = prompts.map_err(|error| Fault::of(error, "prompt"))?;
        let echoes = echoes(service, &call);
        Ok((call, prompts, echoes))
    })
    .await?;
    let heading = Heading::new("cmpl-", &app.service.info().name);
    let terms = guard::on_behalf(call.terms, &headers);
    let names = Names { request: id, answer: heading.id.clone() };
    let choices = start(&app, &prompts, call.best_of, names, &terms)?;
    let answer = CompletionAnswer::new(heading, echoes, call.logprobs, call.stream_usage);
    if call.best_of > call.choices {
        return sse::best(choices, call.choices, answer).await;
    }
    respond(&app, choices, answer, call.stream).await
}

/// The text that each choice begins with, where the client wants its prompt back.
fn echoes(service: &Service, call: &completions::CompletionCall) -> Vec<Option<String>> {
    let text = |request: &TextRequest| match &request.prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Ids(ids) => service.decode(ids),
    };
    let echo = |request: &TextRequest| call.echo.then(|| text(request));
    call.requests.iter().flat_map(|one| vec![echo(one); call.choices]).collect()
}
