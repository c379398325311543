//! `GET` and `POST /lora-adapters`: adapters, and how far each applies to requests that choose
//! none.

use crate::generate::chosen_adapters::{check_updates, refused, scales};
use crate::generate::flow;
use crate::http::app::App;
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::queried_model::{ModelQuery, QueriedModel};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// An adapter.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoraAdapter)]
pub(crate) struct AdapterItem {
    /// Its number, by which `lora` of requests chooses it.
    id: usize,
    /// Its name, by which `model` of requests chooses it; an extension.
    name: String,
    /// The name of its file or folder, without those above it.
    path: String,
    /// Factor for requests that choose no adapters.
    scale: f32,
}

described! {
    /// How far an adapter applies.
    pub(crate) name ScaleBody as "LoraScale" = {
        /// Its number.
        id: (usize),
        /// The factor; 0 for not at all.
        scale: (f32),
    };
}

/// The adapters.
#[utoipa::path(
    get, path = "/lora-adapters", tag = "llama.cpp", params(ModelQuery),
    responses((status = 200, body = Vec<AdapterItem>), (status = 400), (status = 404), (status = 503))
)]
pub(crate) async fn list(QueriedModel(model): QueriedModel) -> Json<Vec<AdapterItem>> {
    let item = |adapter: api::NamedAdapter| AdapterItem {
        id: adapter.id,
        path: adapter.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        name: adapter.name,
        scale: adapter.scale,
    };
    Json(model.service.adapters.list().into_iter().map(item).collect())
}

/// Sets the factors for requests that choose no adapters; 0 for adapters that are left out.
#[utoipa::path(
    post, path = "/lora-adapters", tag = "llama.cpp", params(ModelQuery), request_body = Vec<ScaleBody>,
    responses((status = 200, body = Object), (status = 400), (status = 404), (status = 501), (status = 503))
)]
pub(crate) async fn set(
    State(app): State<App>,
    QueriedModel(model): QueriedModel,
    body: Body,
) -> Result<Json<Value>, HttpError> {
    check_updates(&app)?;
    flow::read(&app, body, move |body| {
        let scales = scales(Some(&body))?.unwrap_or_default();
        let set = model.service.adapters.set_scales(&scales);
        set.map_err(|error| refused("lora", error))
    })
    .await?;
    Ok(Json(json!({ "success": true })))
}
