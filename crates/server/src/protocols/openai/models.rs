//! `GET /v1/models`: the models of the server and their adapters.

use crate::generate::chosen_adapters::refused;
use crate::http::app::App;
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::models::{PooledModel, unknown};
use crate::http::wire::Object;
use crate::protocols::anthropic::models::{self as anthropic, Model as AnthropicModel, ModelPage};
use crate::protocols::openai::problem::Problem;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The models that are served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
    /// Models with the instructions that a client of Codex's kind gives them. It names its version
    /// and insists on this list; as this server has no instructions for it, it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<Object>>,
}

described! {
    /// The models in the form of the client's protocol: with the header `anthropic-version`, in
    /// Anthropic's.
    name ListedModels = ModelList | ModelPage;
    /// A model, in the form of the client's protocol.
    name ListedModel = ModelObject | AnthropicModel;
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelObject {
    id: String,
    /// The title that its file gives it; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    /// Its other names; an extension.
    aliases: Vec<String>,
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// The model that this one is an adapter of; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// Where it is; an extension.
    status: ModelState,
    /// Tokens that the context holds; of a model that is not loaded, those it was trained for. An
    /// extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<usize>,
    /// As `context_length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
    /// Name of what decides the bits of its answers, once it is loaded: `f32` and `bytes` are the
    /// same on every CPU. An extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    arithmetic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<ModelMeta>,
}

/// Where a model is, as llama.cpp's server tells it.
#[derive(Debug, Serialize, ToSchema)]
struct ModelState {
    /// `unloaded`, `loading`, `loaded` or `unloading`.
    value: &'static str,
    /// Whether the last attempt to load it has failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What clients of llama.cpp's server look into.
#[derive(Debug, Serialize, ToSchema)]
struct ModelMeta {
    n_vocab: usize,
    n_ctx: usize,
}

/// The models, each followed by its adapters where it is loaded.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI",
    responses((status = 200, body = ListedModels), (status = 401, body = Problem)))]
pub(crate) async fn model_list(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
    RawQuery(query): RawQuery,
) -> Response {
    let insists = query.is_some_and(|query| query.contains("client_version="));
    let models = insists.then(Vec::new);
    let with_adapters = |entry: &Arc<PooledModel>| {
        let adapters = entry.adapters().into_iter();
        let adapters = adapters.map(|adapter| ModelObject::of_adapter(&app, entry, &adapter.name));
        std::iter::once(ModelObject::of(&app, entry)).chain(adapters).collect::<Vec<_>>()
    };
    let data: Vec<_> = app.models.list().iter().flat_map(with_adapters).collect();
    if anthropic::is_asked(&headers) {
        let models = data.into_iter().map(ModelObject::anthropic).collect();
        return anthropic::response(ModelPage::of(models, &uri));
    }
    Json(ModelList { object: "list", data, models }).into_response()
}

/// A model by a name that requests may use for it, which may have slashes. The object has the
/// model's own name.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "OpenAI", params(("id" = String, Path)),
    responses((status = 200, body = ListedModel), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(crate) async fn model(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let model = named(&app, &id);
    match anthropic::is_asked(&headers) {
        true => Ok(anthropic::response(model.map(ModelObject::anthropic))),
        false => Ok(Json(model?).into_response()),
    }
}

/// The model that requests reach by this name.
fn named(app: &App, id: &str) -> Result<ModelObject, HttpError> {
    let entry = app.models.find(Some(id))?;
    let adapter = entry.loaded().map(|loaded| loaded.service.adapters.of_model(id));
    let adapter = adapter.transpose().map_err(|error| refused("model", error))?.flatten();
    match adapter {
        Some(adapter) => Ok(ModelObject::of_adapter(app, entry, &adapter.name)),
        // A name of the model with that of no adapter after it.
        None if entry.loaded().is_some() && !entry.answers_to(id) => Err(unknown(id)),
        None => Ok(ModelObject::of(app, entry)),
    }
}

impl ModelObject {
    /// A model of the server.
    fn of(app: &App, entry: &PooledModel) -> Self {
        let loaded = entry.loaded().map(|loaded| {
            let info = loaded.service.info();
            ModelMeta { n_vocab: info.vocab_size, n_ctx: info.context_length }
        });
        let meta = loaded.or_else(|| {
            let known = entry.description()?;
            Some(ModelMeta { n_vocab: known.vocab_size, n_ctx: known.card.context_length })
        });
        let context_length = meta.as_ref().map(|meta| meta.n_ctx);
        let problem = entry.problem();
        Self {
            id: entry.name.clone(),
            display_name: entry.description().and_then(|known| known.card.title.clone()),
            aliases: entry.aliases.clone(),
            object: "model",
            created: app.started,
            owned_by: "gannet",
            parent: None,
            status: ModelState {
                value: entry.status().name(),
                failed: problem.is_some(),
                error: problem.map(|problem| problem.to_string()),
            },
            context_length,
            max_model_len: context_length,
            arithmetic: entry.loaded().map(|loaded| loaded.service.info().arithmetic.clone()),
            meta,
        }
    }

    /// The model in Anthropic's form.
    fn anthropic(self) -> AnthropicModel {
        AnthropicModel::new(self.id, self.created, self.context_length)
    }

    /// An adapter of a model.
    fn of_adapter(app: &App, entry: &PooledModel, name: &str) -> Self {
        let base = Self::of(app, entry);
        let aliases = vec![format!("{}:{name}", base.id)];
        let parent = Some(base.id.clone());
        Self { id: name.to_owned(), display_name: None, aliases, parent, ..base }
    }
}
