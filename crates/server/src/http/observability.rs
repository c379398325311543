//! Health and readiness, metrics for Prometheus, and statistics for people.

pub(crate) mod http;
mod report;
mod sliding_window;

use crate::app::App;
use crate::http::error::HttpError;
use crate::http::options::ServerOptions;
use crate::http::shutdown::Phase;
use api::Service;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http::HttpMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use report::StatsReport;
use serde_json::json;
use sliding_window::SlidingWindow;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// What Prometheus asks for and every version of it reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics and statistics of the server.
#[derive(Debug)]
pub(crate) struct Observability {
    pub http: HttpMetrics,
    registry: Registry,
    window: SlidingWindow,
    started: Instant,
}

impl Observability {
    /// Watches `service` from now on.
    pub fn new(service: &Service) -> Self {
        let model = service.info().name.clone();
        let mut registry = Registry::with_labels([("model_name".into(), model.into())].into_iter());
        let http = HttpMetrics::default();
        service.metrics().register(&mut registry);
        http.register(&mut registry);
        Self {
            http,
            registry,
            window: SlidingWindow::new(&service.metrics().snapshot()),
            started: Instant::now(),
        }
    }

    /// Samples the counts periodically for the rates of the last minute.
    pub async fn look(&self, service: &Service) -> Infallible {
        self.window.look(service.metrics()).await
    }
}

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
    if app.conditions.life.phase() > Phase::Serving {
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
    let mut text = String::new();
    encode(&mut text, &app.observability.registry)
        .map_err(|_| HttpError::server(StatusCode::INTERNAL_SERVER_ERROR, "internal error"))?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// `GET /v1/stats`: the counts for people, as JSON or as a table.
pub(crate) async fn stats(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let stats = app.service.metrics().snapshot();
    let report = StatsReport {
        model: &app.service.info().name,
        ready: readiness(&app).is_ok(),
        uptime: app.observability.started.elapsed(),
        rates: app.observability.window.rates(&stats),
        http: app.observability.http.counts(),
        stats,
    };
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
