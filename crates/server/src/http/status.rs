//! Handlers of health, readiness, metrics and statistics.

use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::LiveModel;
use crate::http::observability::{Exposition, StatsReport};
use crate::http::request::RequestContext;
use crate::http::shutdown::Phase;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

/// When the server started, in seconds since 1970, as llama.cpp's server tells it.
const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

/// The state of the server in a word.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerStatus {
    status: &'static str,
}

/// The program.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProgramVersion {
    name: &'static str,
    version: &'static str,
}

/// Whether the engine of the only model lives; a server of many models lives without them.
#[utoipa::path(get, path = "/health", tag = "Operation",
    responses((status = 200, body = ServerStatus), (status = 503)))]
pub(crate) async fn health(State(app): State<App>) -> Result<Json<ServerStatus>, HttpError> {
    alive(&app)?;
    Ok(Json(ServerStatus { status: "ok" }))
}

/// Whether a request sent now would be answered.
#[utoipa::path(get, path = "/ready", tag = "Operation",
    responses((status = 200, body = ServerStatus), (status = 503)))]
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<ServerStatus>, HttpError> {
    readiness(&app)?;
    Ok(Json(ServerStatus { status: "ready" }))
}

/// The name and the version of the program.
#[utoipa::path(get, path = "/version", tag = "Operation",
    responses((status = 200, body = ProgramVersion), (status = 401)))]
pub(crate) async fn version() -> Json<ProgramVersion> {
    Json(ProgramVersion { name: "gannet", version: env!("CARGO_PKG_VERSION") })
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

/// The counts for Prometheus, as OpenMetrics where `Accept` asks for it.
#[utoipa::path(get, path = "/metrics", tag = "Operation", responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 401),
    (status = 501, description = "The metrics endpoint is disabled")))]
pub(crate) async fn metrics(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    if !app.options.metrics {
        return Err(HttpError::not_supported("the metrics endpoint is disabled (--no-metrics)"));
    }
    let form = exposition(&headers);
    let loaded = app.models.loaded();
    let models = loaded.iter().map(|loaded| &*loaded.observability);
    let text = app.observability.text(models, form).map_err(|_| HttpError::internal())?;
    let started = app.started.to_string();
    let (kind, vary) = (form.content_type(), header::ACCEPT.as_str());
    let headers = [(header::CONTENT_TYPE, kind), (header::VARY, vary), (STARTED, &*started)];
    Ok((headers, text).into_response())
}

/// OpenMetrics where the client names it, and does not like the older format better.
fn exposition(headers: &HeaderMap) -> Exposition {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted: Vec<&str> = accepted.flat_map(|value| value.split(',')).collect();
    let quality = |kind: &str| {
        let named = |range: &&str| {
            range.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case(kind))
        };
        let range = accepted.iter().copied().find(named)?;
        let given = range
            .split(';')
            .find_map(|part| part.trim().strip_prefix(['q', 'Q'])?.strip_prefix('='));
        Some(given.map_or(1.0, |quality| quality.parse::<f32>().unwrap_or(0.0)))
    };
    let open = quality("application/openmetrics-text").unwrap_or(0.0);
    match open > 0.0 && open >= quality("text/plain").unwrap_or(0.0) {
        true => Exposition::OpenMetrics,
        false => Exposition::Prometheus,
    }
}

/// The counts to be read by a person, as JSON or as a table: that of the only model, or of each
/// that is loaded under `models`.
#[utoipa::path(get, path = "/v1/stats", tag = "Operation",
    params(
        ("format" = Option<String>, Query, description = "json, or text for a table"),
        ("request" = Option<String>, Query,
            description = "the `x-request-id` of a request of the caller: as JSON, what its \
                prompts found in the cache, and why not more"),
    ),
    responses((status = 200, body = Object), (status = 400), (status = 401),
        (status = 404, description = "The caller has sent no such request lately")))]
pub(crate) async fn stats(
    context: RequestContext,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    if let Some((_, id)) = query.iter().find(|(name, _)| name == "request") {
        return request_stats(&context, id);
    }
    let app = &context.app;
    let (loaded, ready) = (app.models.loaded(), readiness(app).is_ok());
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
            return Ok(indented(&json));
        }
    }
    .into_response())
}

/// What the prompts of a request found in the cache.
fn request_stats(context: &RequestContext, id: &str) -> Result<Response, HttpError> {
    let of = |caller: &Arc<str>| context.app.observability.cache.find(caller, id);
    let unknown = || {
        let message = format!("no request {id:?} of this caller is known; the last ones are kept");
        HttpError::request(StatusCode::NOT_FOUND, message).with_code("unknown_request")
    };
    let reports = context.caller.as_ref().and_then(of).ok_or_else(unknown)?;
    Ok(indented(&reports.json()))
}

/// JSON to be read by a person.
fn indented(json: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{json:#}\n")).into_response()
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

    fn check_exposition(accept: &str, expected: Exposition) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        assert_eq!(exposition(&headers), expected, "{accept}");
    }

    #[test]
    fn open_metrics_are_for_those_who_ask() {
        use Exposition::{OpenMetrics, Prometheus};
        assert_eq!(exposition(&HeaderMap::new()), Prometheus);
        check_exposition("*/*", Prometheus);
        check_exposition("text/plain;version=0.0.4", Prometheus);
        check_exposition("application/openmetrics-text", OpenMetrics);
        check_exposition("application/openmetrics-text;q=0", Prometheus);
        // What versions 2 and 3 of Prometheus send.
        check_exposition(
            "application/openmetrics-text;version=1.0.0,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OpenMetrics,
        );
        check_exposition(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2",
            OpenMetrics,
        );
        check_exposition("application/openmetrics-text;q=0.4, text/plain;q=0.5", Prometheus);
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
