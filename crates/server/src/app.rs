//! The routes, and the way of a request through them: read, prepare off the reactor, submit,
//! answer.

use crate::choices::{Choices, Conditions, Names};
use crate::fault::Fault;
use crate::guard::{self, HEALTH, METRICS, READY, RequestId, STATS};
use crate::openai::answer::{Answer, Heading, unix_now};
use crate::openai::chat_answer::ChatAnswer;
use crate::openai::completion_answer::CompletionAnswer;
use crate::openai::{chat, completions, models};
use crate::options::ServerOptions;
use crate::shutdown::Life;
use crate::watch::{self, Watch};
use crate::{body, sse, web};
use api::{Prepared, Prompt, Service, Terms, TextRequest};
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

/// What every handler can reach.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub service: Service,
    pub options: Arc<ServerOptions>,
    pub conditions: Conditions,
    pub watch: Arc<Watch>,
    /// Bounds the prompts that are parsed and tokenized at one time.
    preparing: Arc<Semaphore>,
    started: u64,
}

impl App {
    pub fn new(service: Service, options: ServerOptions, life: Life) -> Self {
        let watch = Arc::new(Watch::new(&service));
        let http = watch.http.clone();
        let conditions = Conditions { life, stall_timeout: options.stall_timeout, http };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Self {
            service,
            options: Arc::new(options),
            conditions,
            watch,
            preparing: Arc::new(Semaphore::new(cores)),
            started: unix_now(),
        }
    }
}

/// The server's routes over `service`, to be served or tested as any tower service.
pub fn router(service: Service, options: ServerOptions) -> Router {
    routes(App::new(service, options, Life::default()))
}

pub(crate) fn routes(app: App) -> Router {
    let cors = app.options.cors_origin.as_deref().map(cors);
    let router = Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/models", get(model_list))
        .route("/v1/models/{*id}", get(model))
        .route(HEALTH, get(watch::health))
        .route(READY, get(watch::ready))
        .route(METRICS, get(watch::metrics))
        .route(STATS, get(watch::stats))
        .route("/version", get(version))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(guard::panicked))
        .layer(from_fn_with_state(app.clone(), guard::admit))
        .with_state(app.clone())
        .merge(web::routes());
    match cors {
        Some(cors) => router.layer(cors),
        None => router,
    }
    .layer(from_fn_with_state(app, guard::log))
}

/// Browsers of `origin` may call every route. An origin that no header can carry allows none.
fn cors(origin: &str) -> CorsLayer {
    let origin = match origin {
        "*" => AllowOrigin::any(),
        one => AllowOrigin::list(HeaderValue::from_str(one).ok()),
    };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::OPTIONS])
        .allow_headers(Any)
}

async fn unknown_route(method: Method, uri: axum::http::Uri) -> Fault {
    let message = format!("no such endpoint: {method} {}", uri.path());
    Fault::request(StatusCode::NOT_FOUND, message).with_code("unknown_endpoint")
}

pub(crate) async fn wrong_method(method: Method, uri: axum::http::Uri) -> Fault {
    let message = format!("{} does not take {method}", uri.path());
    Fault::request(StatusCode::METHOD_NOT_ALLOWED, message).with_code("method_not_allowed")
}

async fn version() -> Json<Value> {
    Json(json!({ "name": "gannet", "version": env!("CARGO_PKG_VERSION") }))
}

async fn model_list(State(app): State<App>) -> Json<Value> {
    Json(models::list(app.service.info(), app.started))
}

async fn model(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, Fault> {
    if id == app.service.info().name {
        return Ok(Json(models::one(app.service.info(), app.started)));
    }
    let message = format!("no such model: {id}");
    Err(Fault::request(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

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

/// Reads the body and lets `work` make requests of it on a thread where it may take its time.
async fn prepare<T: Send + 'static>(
    app: &App,
    body: Body,
    work: impl FnOnce(&Service, Value) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let bytes = body::read(body, &app.options).await?;
    let broken = |_| Fault::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error");
    let permit =
        Arc::clone(&app.preparing).acquire_owned().await.map_err(|_| Fault::shutting_down())?;
    let service = app.service.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&service, body::json(&bytes)?)
    });
    prepared.await.map_err(broken)?
}

fn start(
    app: &App,
    prompts: &[Prepared],
    n: usize,
    names: Names,
    terms: &Terms,
) -> Result<Choices, Fault> {
    let (wanted, queue) = (prompts.len() * n, app.service.queue());
    if wanted > queue {
        // To try again would be of no use.
        let message = format!("{wanted} answers at once do not fit into the queue of {queue}");
        return Err(Fault::invalid("n", message));
    }
    Choices::start(&app.service, prompts, n, names, terms, &app.conditions)
        .map_err(|error| Fault::of(error, "prompt"))
}

async fn respond(
    app: &App,
    choices: Choices,
    answer: impl Answer,
    stream: bool,
) -> Result<Response, Fault> {
    if stream {
        return Ok(sse::streamed(choices, answer, app.options.keep_alive));
    }
    sse::whole(choices, answer).await
}
