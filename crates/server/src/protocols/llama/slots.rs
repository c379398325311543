//! `POST /slots/{id_slot}`: takes the prefix of a slot to a file and back, or forgets it.

use crate::generate::flow;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use crate::http::queried_model::{ModelQuery, QueriedModel};
use crate::http::slots::SlotTable;
use crate::http::wire;
use api::{CacheIsolation, PrefixFile, PrefixFiles};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// Most bytes of a file's name.
const MAX_NAME: usize = 200;

/// Which file.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SlotFileBody)]
pub(crate) struct FileBody {
    /// Its name in the folder of --slot-save-path.
    filename: Option<String>,
}

/// What was done with a slot.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = SlotAction)]
pub(crate) enum Done {
    Saved {
        id_slot: usize,
        filename: String,
        /// Tokens in the file.
        n_saved: usize,
        /// Bytes of the file.
        n_written: u64,
        timings: SaveTimes,
    },
    Restored {
        id_slot: usize,
        filename: String,
        /// Tokens in the file.
        n_restored: usize,
        /// Bytes of the file.
        n_read: u64,
        timings: RestoreTimes,
    },
    Erased {
        id_slot: usize,
        /// Tokens that are forgotten.
        n_erased: usize,
    },
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlotSaveTimes)]
pub(crate) struct SaveTimes {
    save_ms: f64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlotRestoreTimes)]
pub(crate) struct RestoreTimes {
    restore_ms: f64,
}

/// Saves the prefix that was computed last under the `id_slot` of completions, restores or erases
/// it.
#[utoipa::path(
    post, path = "/slots/{id_slot}", tag = "llama.cpp", request_body = FileBody,
    params(
        ("id_slot" = usize, Path, description = "The slot"),
        ("action" = String, Query, description = "`save`, `restore` or `erase`"),
        ModelQuery,
    ),
    responses((status = 200, body = Done), (status = 400),
        (status = 503, description = "Too many files of slots are written or read"),
        (status = 501, description = "There is no folder for files of slots, or callers have parts \
            of the caches of their own"))
)]
pub(crate) async fn act(
    State(app): State<App>,
    QueriedModel(model): QueriedModel,
    Path(id): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    body: Body,
) -> Result<Json<Done>, HttpError> {
    let (slots, files) = storage(&app, &model)?;
    let id = id.parse().ok().filter(|id| slots.has(*id));
    let id: usize = id.ok_or_else(|| HttpError::invalid("id_slot", "invalid slot ID"))?;
    let action = query.iter().find(|(name, _)| name == "action");
    let action = action.map(|(_, action)| action.clone()).unwrap_or_default();
    if action == "erase" {
        return Ok(Json(Done::Erased { id_slot: id, n_erased: slots.erase(id) }));
    }
    let saves = match action.as_str() {
        "save" => true,
        "restore" => false,
        _ => {
            let message = "invalid action: expected save, restore or erase";
            return Err(HttpError::invalid("action", message));
        }
    };
    let folder = slots.folder().to_owned();
    let named = flow::read(&app, body, move |body| file(&folder, &body));
    let (filename, path) = named.await?;
    let begin = Instant::now();
    let permit = slots.file_permit().ok_or_else(busy)?;
    let tokens = slots.tokens(id);
    let moved = tokio::task::spawn_blocking(move || {
        // Held for as long as the thread is, even if the client leaves.
        let _permit = permit;
        match saves {
            true => files.save(&tokens, &path),
            false => files.restore(&path),
        }
    });
    let what = if saves { "saved" } else { "restored" };
    let refused = |why| HttpError::member("filename", format!("cannot be {what}: {why}"));
    let moved = moved.await.map_err(|_| HttpError::internal())?;
    let PrefixFile { tokens, bytes } = moved.map_err(refused)?;
    let (count, ms) = (tokens.len(), begin.elapsed().as_secs_f64() * 1e3);
    if saves {
        return Ok(Json(Done::Saved {
            id_slot: id,
            filename,
            n_saved: count,
            n_written: bytes,
            timings: SaveTimes { save_ms: ms },
        }));
    }
    slots.set(id, tokens);
    Ok(Json(Done::Restored {
        id_slot: id,
        filename,
        n_restored: count,
        n_read: bytes,
        timings: RestoreTimes { restore_ms: ms },
    }))
}

/// 503: other files are written and read.
fn busy() -> HttpError {
    let message = "too many files of slots are written or read; try again";
    HttpError::server(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// The slots of the server and what takes their prefixes to files.
fn storage(
    app: &App,
    model: &ModelUse,
) -> Result<(Arc<SlotTable>, Arc<dyn PrefixFiles>), HttpError> {
    let unsupported = "slots are not saved without --slot-save-path and a cache on disk";
    let slots = model.loaded.slots.clone().zip(model.service.prefixes.clone());
    let slots = slots.ok_or_else(|| HttpError::not_supported(unsupported))?;
    match app.options.isolation() {
        CacheIsolation::Off => Ok(slots),
        _ => Err(HttpError::not_supported("slots are not saved while --cache-isolation is on")),
    }
}

/// The name of a file and its path.
fn file(folder: &std::path::Path, body: &Value) -> Result<(String, PathBuf), HttpError> {
    let FileBody { filename } = wire::read(body)?;
    let name = filename.ok_or_else(|| wire::missing("filename"))?;
    let is_plain = |it: char| !it.is_control() && !matches!(it, '/' | '\\' | ':');
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with('.')
        || !name.chars().all(is_plain)
    {
        return Err(HttpError::member("filename", "must be a name without separators"));
    }
    let path = folder.join(&name);
    Ok((name, path))
}
