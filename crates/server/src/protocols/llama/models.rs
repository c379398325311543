//! `POST /models/load` and `POST /models/unload`: load and unload models of a server that has many,
//! as in llama.cpp's router.

use crate::generate::flow;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::wire;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The model to load or to unload.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LlamaModelBody)]
pub(crate) struct ModelBody {
    /// Its name.
    model: String,
}

/// That it was done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LlamaModelDone)]
pub(crate) struct ModelDone {
    success: bool,
}

/// Loads a model; the answer comes when it is loaded.
#[utoipa::path(
    post, path = "/v1/models/load", tag = "llama.cpp", request_body = ModelBody,
    responses((status = 200, body = ModelDone), (status = 400), (status = 404),
        (status = 503, description = "The model cannot be loaded"))
)]
pub(crate) async fn load(State(app): State<App>, body: Body) -> Result<Json<ModelDone>, HttpError> {
    let ModelBody { model } = flow::read(&app, body, |body| wire::read(&body)).await?;
    app.models.acquire(app.models.find(Some(&model))?).await?;
    Ok(Json(ModelDone { success: true }))
}

/// Unloads a model when the requests that use it have ended; the answer comes then.
#[utoipa::path(
    post, path = "/v1/models/unload", tag = "llama.cpp", request_body = ModelBody,
    responses((status = 200, body = ModelDone), (status = 400), (status = 404),
        (status = 409, description = "The model is pinned, or the only one"))
)]
pub(crate) async fn unload(
    State(app): State<App>,
    body: Body,
) -> Result<Json<ModelDone>, HttpError> {
    let ModelBody { model } = flow::read(&app, body, |body| wire::read(&body)).await?;
    app.models.unload(Some(&model)).await?;
    Ok(Json(ModelDone { success: true }))
}
