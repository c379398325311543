//! Handlers of health, readiness, metrics and statistics.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::options::ServerOptions;
use crate::http::shutdown::Phase;
use api::Service;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::time::Duration;

/// What Prometheus asks for and every version of it reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /health`: whether the engine lives.
pub(crate) async fn health(State(app): State<App>) -> Result<Response, HttpError> {
    if app.service.is_alive() {
        return Ok(Json(json!({ "status": "ok" })).into_response());
    }
    Err(stopped())
}

/// `GET /ready`: whether a request sent now would be answered.
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, HttpError> {
    readiness(&app)?;
    Ok(Json(json!({ "status": "ready" })).into_response())
}

fn readiness(app: &App) -> Result<(), HttpError> {
    if !app.service.is_alive() {
        return Err(stopped());
    }
    if app.life.phase() > Phase::Serving {
        return Err(HttpError::shutting_down().with_code("shutting_down"));
    }
    match stalled(&app.service, &app.options) {
        None => Ok(()),
        Some(time) => {
            let message = format!("the engine has made no progress for {} s", time.as_secs());
            Err(unavailable(&message).with_code("engine_stalled"))
        }
    }
}

fn stalled(service: &Service, options: &ServerOptions) -> Option<Duration> {
    service.metrics().stalled_for().filter(|&time| time >= options.progress_timeout)
}

fn stopped() -> HttpError {
    unavailable("the engine has stopped").with_code("engine_stopped")
}

fn unavailable(message: &str) -> HttpError {
    HttpError::server(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// `GET /metrics`: the counts for Prometheus.
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, HttpError> {
    let text = app.observability.text();
    let text =
        text.map_err(|_| HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error"))?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// `GET /v1/stats`: the counts for people, as JSON or as a table.
pub(crate) async fn stats(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let report = app.observability.report(&app.service, readiness(&app).is_ok());
    Ok(match as_table(&query, &headers)? {
        true => report.text().into_response(),
        false => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, format!("{:#}\n", report.json())).into_response()
        }
    })
}

/// Whether the client wants a table: by `format`, else by what it accepts.
fn as_table(query: &[(String, String)], headers: &HeaderMap) -> Result<bool, HttpError> {
    let format = query.iter().find(|(name, _)| name == "format").map(|(_, value)| value.as_str());
    match format {
        Some("text") => Ok(true),
        Some("json") => Ok(false),
        Some(other) => {
            Err(HttpError::invalid("format", format!("format must be json or text, not {other}")))
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
