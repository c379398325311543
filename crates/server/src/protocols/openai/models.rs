//! `GET /v1/models`: the model that is served, and its adapters.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::protocols::openai::problem::Problem;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The models that are served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
    /// Models with the instructions that a client of Codex's kind gives them. It names its version
    /// and insists on this list; as this server has no instructions for it, it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    models: Option<Vec<Map<String, Value>>>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelObject {
    id: String,
    /// Its other names; an extension.
    aliases: Vec<String>,
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// The model that this one is an adapter of; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// Tokens that the context holds; an extension.
    context_length: usize,
    /// As `context_length`.
    max_model_len: usize,
    meta: ModelMeta,
}

/// What clients of llama.cpp's server look into.
#[derive(Debug, Serialize, ToSchema)]
struct ModelMeta {
    n_vocab: usize,
    n_ctx: usize,
}

/// The model that is served, then its adapters.
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI",
    responses((status = 200, body = ModelList), (status = 401, body = Problem)))]
pub(crate) async fn model_list(
    State(app): State<App>,
    RawQuery(query): RawQuery,
) -> Json<ModelList> {
    let insists = query.is_some_and(|query| query.contains("client_version="));
    let models = insists.then(Vec::new);
    let adapters = app.service.adapters.list();
    let adapters = adapters.iter().map(|adapter| ModelObject::of_adapter(&app, &adapter.name));
    let data = std::iter::once(ModelObject::of(&app)).chain(adapters).collect();
    Json(ModelList { object: "list", data, models })
}

/// A model by its name, which may have slashes.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "OpenAI", params(("id" = String, Path)),
    responses((status = 200, body = ModelObject), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(crate) async fn model(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<ModelObject>, HttpError> {
    if id == app.service.info().name || app.options.aliases.contains(&id) {
        return Ok(Json(ModelObject::of(&app)));
    }
    if let Ok(Some(adapter)) = app.service.adapters.of_model(&id) {
        return Ok(Json(ModelObject::of_adapter(&app, &adapter.name)));
    }
    let message = format!("no such model: {id}");
    Err(HttpError::request(StatusCode::NOT_FOUND, message).with_code("model_not_found"))
}

impl ModelObject {
    /// The model that is served.
    fn of(app: &App) -> Self {
        let info = app.service.info();
        Self {
            id: info.name.clone(),
            aliases: app.options.aliases.clone(),
            object: "model",
            created: app.started,
            owned_by: "gannet",
            parent: None,
            context_length: info.context_length,
            max_model_len: info.context_length,
            meta: ModelMeta { n_vocab: info.vocab_size, n_ctx: info.context_length },
        }
    }

    /// An adapter of this name.
    fn of_adapter(app: &App, name: &str) -> Self {
        let base = Self::of(app);
        let aliases = vec![format!("{}:{name}", base.id)];
        Self { id: name.to_owned(), aliases, parent: Some(base.id.clone()), ..base }
    }
}
