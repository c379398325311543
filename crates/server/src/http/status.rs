//! Handlers of health, readiness, metrics and statistics.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::LiveModel;
use crate::http::observability::StatsReport;
use crate::http::shutdown::Phase;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// When the server started, in seconds since 1970, as llama.cpp's server tells it.
const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

/// What Prometheus asks for and every version of it reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /health`: whether the engine of the only model lives; a server of many models lives without
/// them.
pub(crate) async fn health(State(app): State<App>) -> Result<Json<Value>, HttpError> {
    alive(&app)?;
    Ok(Json(json!({ "status": "ok" })))
}

/// `GET /ready`: whether a request sent now would be answered.
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<Value>, HttpError> {
    readiness(&app)?;
    Ok(Json(json!({ "status": "ready" })))
}

fn readiness(app: &App) -> Result<(), HttpError> {
    alive(app)?;
    if app.life.phase() > Phase::Serving {
        return Err(HttpError::shutting_down().with_code("shutting_down"));
    }
    let stalled = |loaded: Arc<LiveModel>| loaded.service.engine.metrics.stalled_for();
    match app.models.loaded().into_iter().filter_map(stalled).max() {
        Some(time) if time >= app.options.progress_timeout => {
            let message = format!("the engine has made no progress for {} s", time.as_secs());
            Err(unavailable(message, "engine_stalled"))
        }
        _ => Ok(()),
    }
}

fn alive(app: &App) -> Result<(), HttpError> {
    match app.models.only().and_then(|only| only.loaded()) {
        Some(loaded) if !loaded.service.engine.is_alive() => {
            Err(unavailable("the engine has stopped", "engine_stopped"))
        }
        _ => Ok(()),
    }
}

fn unavailable(message: impl Into<String>, code: &'static str) -> HttpError {
    HttpError::server(StatusCode::SERVICE_UNAVAILABLE, message).with_code(code)
}

/// `GET /metrics`: the counts for Prometheus.
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, HttpError> {
    if !app.options.metrics {
        return Err(HttpError::not_supported("the metrics endpoint is disabled (--no-metrics)"));
    }
    let loaded = app.models.loaded();
    let models = loaded.iter().map(|loaded| &*loaded.observability);
    let text = app.observability.text(models).map_err(|_| HttpError::internal())?;
    let started = app.started.to_string();
    let headers = [(header::CONTENT_TYPE, OPEN_METRICS), (STARTED, &*started)];
    Ok((headers, text).into_response())
}

/// `GET /v1/stats`: the counts to be read by a person, as JSON or as a table.
pub(crate) async fn stats(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let (loaded, ready) = (app.models.loaded(), readiness(&app).is_ok());
    let report = |loaded: &Arc<LiveModel>| {
        let name = loaded.service.info().name.clone();
        loaded.observability.report(name, ready, &app.observability)
    };
    let mut reports: Vec<StatsReport<'_>> = loaded.iter().map(report).collect();
    let only = app.models.only().and_then(|_| reports.pop());
    Ok(match as_table(&query, &headers)? {
        true => only.iter().chain(&reports).map(StatsReport::text).collect::<Vec<_>>().join("\n"),
        false => {
            let all =
                || json!({ "models": reports.iter().map(StatsReport::json).collect::<Value>() });
            let json = only.as_ref().map_or_else(all, StatsReport::json);
            return Ok(([(header::CONTENT_TYPE, "application/json")], format!("{json:#}\n"))
                .into_response());
        }
    }
    .into_response())
}

/// Whether the client asks for a table: by `format`, or else by its `Accept` header.
fn as_table(query: &[(String, String)], headers: &HeaderMap) -> Result<bool, HttpError> {
    let format = query.iter().find(|(name, _)| name == "format").map(|(_, value)| value.as_str());
    match format {
        Some("text") => Ok(true),
        Some("json") => Ok(false),
        Some(other) => {
            Err(HttpError::member("format", format!("must be json or text, not {other}")))
        }
        None => {
            let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
            Ok(accepted.is_some_and(|types| types.trim_start().starts_with("text/plain")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: Option<&str>, accept: &str, expected: Option<bool>) {
        let query: Vec<_> =
            format.map(|f| ("format".to_owned(), f.to_owned())).into_iter().collect();
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        assert_eq!(as_table(&query, &headers).ok(), expected, "{format:?} {accept}");
    }

    #[test]
    fn a_table_is_for_those_who_ask() {
        check(None, "*/*", Some(false));
        check(None, "text/plain", Some(true));
        check(None, "application/json, text/plain, */*", Some(false));
        check(Some("json"), "text/plain", Some(false));
        check(Some("text"), "*/*", Some(true));
        check(Some("xml"), "*/*", None);
    }
}
