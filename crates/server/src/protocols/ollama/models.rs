//! What Ollama's clients ask about models: the one that is served.

use crate::generate::flow::prepare;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::wire;
use crate::protocols::ollama::{Refusal, line};
use api::{SamplingOptions, Service};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// How far ahead a model is unloaded that never is: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The models there are.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tags)]
pub(crate) struct ModelTags {
    models: Vec<ModelTag>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tag)]
struct ModelTag {
    name: String,
    model: String,
    modified_at: String,
    /// Bytes of the weights.
    size: u64,
    digest: String,
    details: Details,
}

/// The models that are loaded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Running {
    models: Vec<LoadedModel>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Loaded)]
struct LoadedModel {
    name: String,
    model: String,
    /// Bytes of the weights.
    size: u64,
    digest: String,
    details: Details,
    expires_at: String,
    size_vram: u64,
    context_length: usize,
}

/// What a model is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Shown {
    /// Sampling of requests that ask for nothing else, one parameter a line.
    parameters: String,
    template: String,
    details: Details,
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
    modified_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Details {
    parent_model: String,
    format: String,
    family: String,
    families: Vec<String>,
    parameter_size: String,
    quantization_level: String,
}

/// The models there are.
#[utoipa::path(
    get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = ModelTags), Refusals<Refusal>)
)]
pub(crate) async fn tags(State(app): State<App>) -> Json<ModelTags> {
    let (name, card) = (&app.service.info().name, &app.service.card);
    let tag = ModelTag {
        name: name.clone(),
        model: name.clone(),
        modified_at: modified(&app),
        size: card.bytes,
        digest: card.digest.clone(),
        details: details(&app.service),
    };
    Json(ModelTags { models: vec![tag] })
}

/// The models that are loaded.
#[utoipa::path(
    get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Running), Refusals<Refusal>)
)]
pub(crate) async fn ps(State(app): State<App>) -> Json<Running> {
    let (info, card) = (app.service.info(), &app.service.card);
    let loaded = LoadedModel {
        name: info.name.clone(),
        model: info.name.clone(),
        size: card.bytes,
        digest: card.digest.clone(),
        details: details(&app.service),
        expires_at: line::time(SystemTime::now() + NEVER),
        size_vram: 0,
        context_length: info.context_length,
    };
    Json(Running { models: vec![loaded] })
}

/// The model to describe.
#[derive(Debug, Deserialize, ToSchema)]
#[allow(dead_code, reason = "only the types of its members are checked")]
struct ShowBody {
    /// Any name: one model is served.
    model: Option<String>,
    /// An older name of `model`.
    name: Option<String>,
    /// Nothing more is shown.
    verbose: Option<bool>,
}

/// What the model is.
#[utoipa::path(
    post, path = "/api/show", tag = "Ollama", request_body = ShowBody,
    responses((status = 200, body = Shown), Refusals<Refusal>)
)]
pub(crate) async fn show(State(app): State<App>, body: Body) -> Result<Json<Shown>, HttpError> {
    let _: ShowBody = prepare(&app, body, |_, body| wire::read(body)).await?;
    let service = &app.service;
    Ok(Json(Shown {
        parameters: parameters(&service.defaults),
        template: service.template_source().unwrap_or_default().to_owned(),
        details: details(service),
        model_info: model_info(service),
        capabilities: capabilities(service),
        modified_at: modified(&app),
    }))
}

/// The version of this program.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    version: &'static str,
}

/// The version of this program.
#[utoipa::path(
    get, path = "/api/version", tag = "Ollama",
    responses((status = 200, body = Version), Refusals<Refusal>)
)]
pub(crate) async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}

/// The capabilities of the model, by Ollama's names.
fn capabilities(service: &Service) -> Vec<&'static str> {
    let all = [
        ("completion", true),
        ("tools", service.takes_tools()),
        ("thinking", service.reasons()),
        ("insert", service.fills()),
        ("embedding", true),
    ];
    all.into_iter().filter_map(|(name, can)| can.then_some(name)).collect()
}

fn details(service: &Service) -> Details {
    let (info, card) = (service.info(), &service.card);
    Details {
        parent_model: String::new(),
        format: card.format.to_owned(),
        family: info.architecture.clone(),
        families: vec![info.architecture.clone()],
        parameter_size: count(card.parameters),
        quantization_level: card.quantisation.clone(),
    }
}

/// In the keys of GGUF files, whatever the file.
fn model_info(service: &Service) -> Map<String, Value> {
    let (info, card) = (service.info(), &service.card);
    let own = |key: &str| format!("{}.{key}", info.architecture);
    let all = [
        ("general.architecture".to_owned(), json!(info.architecture)),
        ("general.basename".to_owned(), json!(info.name)),
        ("general.parameter_count".to_owned(), json!(card.parameters)),
        (own("context_length"), json!(card.context_length)),
        (own("embedding_length"), json!(card.hidden_size)),
        (own("block_count"), json!(card.layers)),
        (own("attention.head_count"), json!(card.heads)),
        (own("attention.head_count_kv"), json!(card.kv_heads)),
        (own("vocab_size"), json!(info.vocab_size)),
    ];
    Map::from_iter(all)
}

fn parameters(defaults: &SamplingOptions) -> String {
    let numbers = [
        ("temperature", defaults.temperature),
        ("top_k", defaults.top_k.map(|k| k as f32)),
        ("top_p", defaults.top_p),
        ("min_p", defaults.min_p),
        ("typical_p", defaults.typical_p),
        ("repeat_penalty", defaults.repeat_penalty),
    ];
    let line = |(name, number): (&str, Option<f32>)| Some(format!("{name:30} {}\n", number?));
    numbers.into_iter().filter_map(line).collect()
}

fn modified(app: &App) -> String {
    let started = UNIX_EPOCH + Duration::from_secs(app.started);
    line::time(app.service.card.modified.unwrap_or(started))
}

/// A number of weights in short: `8.0B`, `751.63M`.
fn count(parameters: u64) -> String {
    let number = parameters as f64;
    match parameters {
        1_000_000_000.. => format!("{:.1}B", number / 1e9),
        1_000_000.. => format!("{:.2}M", number / 1e6),
        1000.. => format!("{:.2}K", number / 1e3),
        _ => parameters.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_counted_in_words() {
        let all = [8_030_261_312, 751_632_384, 4_100, 12];
        assert_eq!(all.map(count), ["8.0B", "751.63M", "4.10K", "12"]);
    }
}
