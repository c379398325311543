//! The routes of OpenAI's API.

use crate::generate::constraint::ConstraintField;
use crate::generate::flow::{Delivery, Generation, Reply, generate};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::protocols::openai::answer::{Completion, Heading};
use crate::protocols::openai::chat_answer::{ChatAnswer, ChatStyle};
use crate::protocols::openai::chat_body::ChatCompletionRequest;
use crate::protocols::openai::chat_object::{ChatChoice, ChunkChoice};
use crate::protocols::openai::completion_answer::{CompletionAnswer, Echo, TextChoice};
use crate::protocols::openai::completions::CompletionRequest;
use crate::protocols::openai::models::{ModelList, ModelObject};
use crate::protocols::openai::problem::Problem;
use crate::protocols::openai::{chat, completions, embeddings, models};
use api::{Prepared, Prompt, Service, TextRequest};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Rest::openapi())
        .routes(routes!(chat_completions))
        .routes(routes!(text_completions))
        .routes(routes!(model_list))
        .route("/v1/models/{*id}", axum::routing::get(model))
        .merge(embeddings::routes())
}

/// What a document can only say in other words than the router: that names have slashes.
#[derive(OpenApi)]
#[openapi(paths(model))]
struct Rest;

/// The models that are served.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI",
    responses((status = 200, body = ModelList), (status = 401, body = Problem)))]
async fn model_list(State(app): State<App>, RawQuery(query): RawQuery) -> Json<ModelList> {
    Json(models::list(app.service.info(), app.started, query.as_deref()))
}

/// A model by its name, which may have slashes.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "OpenAI", params(("id" = String, Path)),
    responses((status = 200, body = ModelObject), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
async fn model(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ModelObject>, HttpError> {
    if id == app.service.info().name {
        return Ok(Json(models::one(app.service.info(), app.started)));
    }
    let message = format!("no such model: {id}");
    Err(HttpError::request(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

/// The next message of a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "OpenAI",
    request_body = ChatCompletionRequest,
    responses((status = 200, content((Completion<ChatChoice> = "application/json"),
        (Completion<ChunkChoice> = "text/event-stream"))), Refusals<Problem>))]
async fn chat_completions(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    generate(context, body, chat_generation).await
}

fn chat_generation(service: &Service, body: &Value) -> Result<Reply<ChatAnswer>, HttpError> {
    let call = chat::read(body)?;
    let prompt = service.prepare_chat(&call.request);
    let error = |error| ConstraintField::error(call.constraint.as_ref(), error, "messages");
    let prompts = vec![prompt.map_err(error)?];
    let heading = Heading::new("chatcmpl-", &service.info().name);
    let style = ChatStyle {
        logprobs: call.request.sampling.logprobs.is_some(),
        stream_usage: call.stream_usage,
        functions: call.functions,
    };
    let generation = Generation {
        prompts,
        per_prompt: call.choices,
        options: call.options,
        id: heading.id.clone(),
        answer: ChatAnswer::new(heading, call.choices, style),
        delivery: Delivery::of(call.stream),
    };
    Ok(generation.into())
}

/// The continuation of a text.
#[utoipa::path(post, path = "/v1/completions", tag = "OpenAI", request_body = CompletionRequest,
    responses((status = 200, content((Completion<TextChoice> = "application/json"),
        (Completion<TextChoice> = "text/event-stream"))), Refusals<Problem>))]
async fn text_completions(context: RequestContext, body: Body) -> Result<Response, HttpError> {
    generate(context, body, text_generation).await
}

fn text_generation(service: &Service, body: &Value) -> Result<Reply<CompletionAnswer>, HttpError> {
    let call = completions::read(body)?;
    let prompts: Result<Vec<Prepared>, HttpError> =
        call.requests.iter().map(|request| prepared(service, request, &call)).collect();
    let prompts = prompts?;
    let echoes = echoes(service, &call, &prompts);
    let heading = Heading::new("cmpl-", &service.info().name);
    let generation = Generation {
        prompts,
        per_prompt: call.best_of,
        options: call.options,
        id: heading.id.clone(),
        answer: CompletionAnswer::new(heading, echoes, call.logprobs, call.stream_usage),
        delivery: match call.best_of > call.choices {
            true => Delivery::Likeliest(call.choices),
            false => Delivery::of(call.stream),
        },
    };
    Ok(generation.into())
}

/// A prompt as it is, or as the beginning of a gap.
fn prepared(
    service: &Service,
    request: &TextRequest,
    call: &completions::CompletionCall,
) -> Result<Prepared, HttpError> {
    let filling = call.suffix.as_deref();
    let filling = filling.map(|suffix| completions::filling(service, request, suffix));
    let filling = filling.transpose()?;
    let prompt = service.prepare_text(filling.as_ref().unwrap_or(request));
    prompt.map_err(|error| ConstraintField::error(call.constraint.as_ref(), error, "prompt"))
}

/// What each choice begins with, where the client wants its prompt back.
fn echoes(
    service: &Service,
    call: &completions::CompletionCall,
    prompts: &[Prepared],
) -> Vec<Option<Echo>> {
    let echo = |(request, prepared): (&TextRequest, &Prepared)| {
        let text = match &request.prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Ids(ids) => service.decode(ids),
        };
        let first = prepared.prompt().first().map(|&id| service.tokenizer().token_bytes(id));
        call.echo.then(|| Echo { text, first: first.unwrap_or_default().to_vec() })
    };
    let each = call.requests.iter().zip(prompts);
    each.flat_map(|one| vec![echo(one); call.choices]).collect()
}
