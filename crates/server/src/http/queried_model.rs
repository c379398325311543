//! The model that the query of a request without a body names.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::ModelUse;
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

/// The model that the member `model` of a query names, loaded if it was not.
pub(crate) struct QueriedModel(pub ModelUse);

/// The query of a request about a model.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ModelQuery {
    /// The name of the model; needed where there are several.
    model: Option<String>,
}

impl FromRequestParts<App> for QueriedModel {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let query = Query::<ModelQuery>::try_from_uri(&parts.uri).map_err(|rejection| {
            HttpError::request(StatusCode::BAD_REQUEST, rejection.body_text())
        })?;
        let entry = app.models.find(query.model.as_deref())?;
        app.models.acquire(entry).await.map(Self)
    }
}
