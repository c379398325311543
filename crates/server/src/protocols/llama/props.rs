//! `GET /props` and `GET /slots`: what the server is, and what it does right now.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::queried_model::{ModelQuery, QueriedModel};
use crate::protocols::llama::sampling;
use api::SamplingOptions;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Props {
    default_generation_settings: Defaults,
    /// Most answers computed at a time.
    total_slots: usize,
    model_alias: String,
    /// The name of the model's file or folder, without those above it.
    model_path: String,
    chat_template: String,
    bos_token: String,
    eos_token: String,
    build_info: String,
    modalities: Modalities,
    is_sleeping: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Defaults {
    n_ctx: usize,
    /// Sampling of requests that ask for nothing else.
    params: Value,
}

#[derive(Debug, Serialize, ToSchema)]
struct Modalities {
    vision: bool,
    audio: bool,
}

/// A place for an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Slot {
    id: usize,
    /// Always -1: the log names the requests.
    id_task: i64,
    n_ctx: usize,
    speculative: bool,
    is_processing: bool,
}

/// What the server is.
#[utoipa::path(
    get, path = "/props", tag = "llama.cpp", params(ModelQuery),
    responses((status = 200, body = Props), (status = 400), (status = 404), (status = 503))
)]
pub(crate) async fn properties(
    QueriedModel(ModelUse { service, .. }): QueriedModel,
) -> Json<Props> {
    let info = service.info();
    let [bos, eos] = service.ends_of_text().map(|text| text.unwrap_or_default().to_owned());
    let params = sampling::settings(&service, &SamplingOptions::default());
    Json(Props {
        default_generation_settings: Defaults { n_ctx: info.context_length, params },
        total_slots: service.parallel,
        model_alias: info.name.clone(),
        model_path: service.card.file.clone(),
        chat_template: service.template_source().unwrap_or_default().to_owned(),
        bos_token: bos,
        eos_token: eos,
        build_info: concat!("gannet ", env!("CARGO_PKG_VERSION")).to_owned(),
        modalities: Modalities { vision: false, audio: false },
        is_sleeping: false,
    })
}

/// The places for answers, and which of them are taken.
#[utoipa::path(
    get, path = "/slots", tag = "llama.cpp", params(ModelQuery),
    responses((status = 200, body = Vec<Slot>), (status = 400), (status = 404),
        (status = 501, description = "The endpoint is disabled"),
        (status = 503, description = "No slot is free"))
)]
pub(crate) async fn slots(
    State(App { options, .. }): State<App>,
    QueriedModel(ModelUse { service, .. }): QueriedModel,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<Vec<Slot>>, HttpError> {
    if !options.slots {
        return Err(HttpError::not_supported("the slots endpoint is disabled (--no-slots)"));
    }
    let needs_free = query.iter().any(|(name, value)| name == "fail_on_no_slot" && value == "1");
    let stats = service.engine.metrics.snapshot();
    let (n_ctx, busy) = (service.info().context_length, stats.running as usize);
    let count = service.parallel.max(busy);
    if needs_free && busy >= count {
        return Err(HttpError::server(StatusCode::SERVICE_UNAVAILABLE, "no slot is free"));
    }
    let slot = |id: usize| Slot {
        id,
        id_task: -1,
        n_ctx,
        speculative: stats.drafted() > 0,
        is_processing: id < busy,
    };
    Ok(Json((0..count).map(slot).collect()))
}
