//! `GET /v1/receipts/key`: the key that receipts can be checked with.

use crate::http::app::App;
use crate::http::error::HttpError;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// The public key of receipts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PublicKey {
    /// `ed25519`.
    algorithm: String,
    /// The key, in hexadecimal digits.
    key: String,
}

/// The public key that the signatures of receipts can be checked with.
#[utoipa::path(get, path = "/v1/receipts/key", tag = "Operation",
    responses((status = 200, body = PublicKey), (status = 401), (status = 404)))]
pub(crate) async fn receipt_key(State(app): State<App>) -> Result<Json<PublicKey>, HttpError> {
    let Some(key) = &app.options.receipt_key else {
        let message = "the server signs no receipts: it has no key for them";
        return Err(HttpError::request(StatusCode::NOT_FOUND, message).with_code("no_receipt_key"));
    };
    let [algorithm, key] = key.public();
    Ok(Json(PublicKey { algorithm, key }))
}
