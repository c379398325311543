//! The steps of a request in every protocol: read, prepare on a blocking thread, submit, answer.

use crate::generate::answer::Answer;
use crate::generate::choices::Choices;
use crate::generate::chosen_adapters;
use crate::generate::delivery;
use crate::generate::length;
use crate::generate::receipts;
use crate::http::app::App;
use crate::http::body;
use crate::http::error::HttpError;
use crate::http::models::{ModelPool, ModelUse, PooledModel, unknown};
use crate::http::request::{ModelContext, RequestContext};
use api::{
    ApiError, InfillRequest, Prepared, Prompt, RequestOptions, SamplingOptions, Service,
    TextRequest,
};
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use text::GrammarSource;

/// Reads the body and runs `work` with its JSON on a thread that may block.
pub(crate) async fn read<T: Send + 'static>(
    app: &App,
    body: Body,
    work: impl FnOnce(Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let bytes = body::read(body, &app.options).await?;
    let (depth, size) = (app.options.json_depth, bytes.len());
    let read = move || {
        let json = body::json(&bytes, depth)?;
        // A long text is not kept twice.
        drop(bytes);
        work(json)
    };
    app.prepare(size, read).await
}

/// The body of a request, and the model that it names.
pub(crate) struct NamedModel {
    body: Value,
    entry: Arc<PooledModel>,
    /// `None` if it has to be loaded first.
    ready: Option<ModelUse>,
}

impl NamedModel {
    /// Reads the body, and finds the model that it names.
    ///
    /// # Errors
    /// If the body is too large or not JSON, or names a model that the server does not have.
    pub async fn read(app: &App, body: Body) -> Result<Self, HttpError> {
        let models = app.models.clone();
        read(app, body, move |body| Self::of(&models, body)).await
    }

    /// The model that `body` names.
    ///
    /// # Errors
    /// If the server does not have the model.
    pub fn of(models: &ModelPool, body: Value) -> Result<Self, HttpError> {
        let entry = Arc::clone(models.find(name_of(&body))?);
        Ok(Self { ready: models.ready(&entry), entry, body })
    }

    /// The body.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Whether the model has to be loaded first.
    pub fn is_away(&self) -> bool {
        self.ready.is_none()
    }

    /// Whether the model has to be loaded first, for an answer that is streamed unless its body
    /// says otherwise, if that is the `default`.
    fn waits_to_stream(&self, default: bool) -> bool {
        let stream = self.body.get("stream").and_then(Value::as_bool);
        self.is_away() && stream.unwrap_or(default)
    }

    /// Waits for the model, and runs `work` with it and the body on a thread that may block. The
    /// service is that of the adapters that the body names.
    ///
    /// # Errors
    /// If the model cannot be loaded, the body names an unknown adapter, or `work` fails.
    pub async fn prepare<T: Send + 'static>(
        self,
        context: RequestContext,
        work: impl FnOnce(&ModelUse, &Value) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<(ModelContext, T), HttpError> {
        let Self { body, entry, ready } = self;
        let model = match ready {
            Some(model) => model,
            None => context.app.models.acquire(&entry).await?,
        };
        let receipt = receipts::wanted(&context.app.options, &body)?;
        let ModelContext { request, model, .. } = context.with(model);
        let app = request.app.clone();
        app.prepare(text_bytes(&body), move || {
            let service = match chosen_adapters::chosen(&model.service, &body)? {
                Cow::Owned(adapted) => adapted,
                // A name of the model with that of no adapter behind it.
                Cow::Borrowed(own) => match name_of(&body).filter(|it| !model.answers_to(it)) {
                    Some(name) => return Err(unknown(name)),
                    None => own.clone(),
                },
            };
            let model = model.with(service);
            let done = work(&model, &body)?;
            if receipt {
                let prepared = model.service.prepare_receipts();
                prepared.map_err(|error| HttpError::of(error, "receipt"))?;
            }
            Ok((ModelContext { request, model, receipt }, done))
        })
        .await
    }
}

/// Bytes of all texts of a body.
fn text_bytes(body: &Value) -> usize {
    match body {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        _ => 0,
    }
}

/// The name of the model in a body.
fn name_of(body: &Value) -> Option<&str> {
    body.get("model").and_then(Value::as_str)
}

/// Reads the body and runs `work` with its JSON on a thread that may block, with the service of the
/// model and the adapters that the body names. Returns the request with its model too.
pub(crate) async fn prepare_within<T: Send + 'static>(
    context: RequestContext,
    body: Body,
    work: impl FnOnce(&Service, &Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<(ModelContext, T), HttpError> {
    let named = NamedModel::read(&context.app, body).await?;
    named.prepare(context, |model, body| work(&model.service, body)).await
}

/// As [`prepare_within`], for what takes no computation.
pub(crate) async fn prepare<T: Send + 'static>(
    context: RequestContext,
    body: Body,
    work: impl FnOnce(&Service, &Value) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    prepare_within(context, body, work).await.map(|(_, done)| done)
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
    let read = |model: &ModelUse, body: &Value| read(&model.service, body);
    when_ready::<A, _>(context, body, |context, named| answered(context, named, read)).await
}

/// Reads the body and responds as `work` does. Where that waits for a model to be loaded, a stream
/// begins before it.
pub(crate) async fn when_ready<A, F>(
    context: RequestContext,
    body: Body,
    work: impl FnOnce(RequestContext, NamedModel) -> F,
) -> Result<Response, HttpError>
where
    A: Answer,
    F: Future<Output = Result<Response, HttpError>> + Send + 'static,
{
    let named = NamedModel::read(&context.app, body).await?;
    let waits = named.waits_to_stream(A::STREAMS);
    let silence = delivery::silence::<A>(&context.app);
    let work = work(context, named);
    if waits { delivery::begun::<A>(silence, work).await } else { work.await }
}

/// Reads a request whose model is named, computes its answer and responds with it.
pub(crate) async fn answered<A: Answer>(
    context: RequestContext,
    named: NamedModel,
    read: impl FnOnce(&ModelUse, &Value) -> Result<Reply<A>, HttpError> + Send + 'static,
) -> Result<Response, HttpError> {
    let keep_alive = A::keep_alive(named.body());
    let read = |model: &ModelUse, body: &Value| {
        length::check(&model.service, body)?;
        read(model, body)
    };
    let (context, reply) = named.prepare(context, read).await?;
    if let Some(time) = keep_alive {
        context.model.keep(time);
    }
    let generation = match reply {
        Reply::Ready(json) => return Ok(Json(json).into_response()),
        Reply::Generate(generation) => generation,
    };
    let Generation { prompts, per_prompt, options, id, answer, delivery } = *generation;
    let choices = Choices::start(&context, &prompts, per_prompt, options, id)?;
    respond(&context.request.app, choices, answer, delivery).await
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
        Delivery::Stream => Ok(delivery::streamed(choices, answer, delivery::silence::<A>(app))),
    }
}
