//! What Ollama's clients ask about models.

use crate::generate::flow;
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::models::PooledModel;
use crate::http::refusals::Refusals;
use crate::http::wire;
use crate::protocols::ollama::line;
use crate::protocols::ollama::refusal::Refusal;
use api::{ModelCard, ModelDescription, SamplingOptions};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
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

/// The models there are, each followed by its adapters where it is loaded.
#[utoipa::path(
    get, path = "/api/tags", tag = "Ollama", responses((status = 200, body = ModelTags), Refusals<Refusal>)
)]
pub(crate) async fn tags(State(app): State<App>) -> Json<ModelTags> {
    let tag = |name: String, known: &ModelDescription, parent: &str| ModelTag {
        model: name.clone(),
        modified_at: modified(&app, &known.card),
        size: known.card.bytes,
        digest: known.card.digest.clone(),
        details: Details { parent_model: parent.to_owned(), ..details(known) },
        name,
    };
    let tags = |entry: &Arc<PooledModel>| {
        let known = known(entry);
        let adapters = entry.adapters().into_iter();
        let adapters = adapters.map(|adapter| tag(adapter.name, &known, &entry.name));
        std::iter::once(tag(entry.name.clone(), &known, "")).chain(adapters).collect::<Vec<_>>()
    };
    Json(ModelTags { models: app.models.list().iter().flat_map(tags).collect() })
}

/// The models that are loaded.
#[utoipa::path(
    get, path = "/api/ps", tag = "Ollama", responses((status = 200, body = Running), Refusals<Refusal>)
)]
pub(crate) async fn ps(State(app): State<App>) -> Json<Running> {
    let running = |entry: &Arc<PooledModel>| {
        let loaded = entry.loaded()?;
        let (name, known) = (entry.name.clone(), known(entry));
        Some(LoadedModel {
            model: name.clone(),
            size: known.card.bytes,
            digest: known.card.digest.clone(),
            details: details(&known),
            expires_at: line::time(
                SystemTime::now() + entry.expires_in().unwrap_or(NEVER).min(NEVER),
            ),
            size_vram: 0,
            context_length: loaded.service.info().context_length,
            name,
        })
    };
    Json(Running { models: app.models.list().iter().filter_map(running).collect() })
}

/// The model to describe.
#[derive(Debug, Deserialize, ToSchema)]
struct ShowBody {
    /// The name of a model; any name where one is served.
    model: Option<String>,
    /// An older name of `model`.
    name: Option<String>,
    /// Nothing more is shown.
    #[serde(rename = "verbose")]
    _verbose: Option<bool>,
}

/// What the model is. A model that is not loaded is described from its files.
#[utoipa::path(
    post, path = "/api/show", tag = "Ollama", request_body = ShowBody,
    responses((status = 200, body = Shown), Refusals<Refusal>)
)]
pub(crate) async fn show(State(app): State<App>, body: Body) -> Result<Json<Shown>, HttpError> {
    let asked: ShowBody = flow::read(&app, body, |body| wire::read(&body)).await?;
    let entry = app.models.find(asked.model.or(asked.name).as_deref())?;
    let known = app.models.described(entry).await?;
    Ok(Json(Shown {
        parameters: parameters(&known.defaults),
        template: known.template.clone().unwrap_or_default(),
        details: details(known),
        model_info: model_info(&entry.name, known),
        capabilities: capabilities(known),
        modified_at: modified(&app, &known.card),
    }))
}

/// The version of Ollama whose API this is, which clients compare with the least one that they
/// need. This program's own is at `/version`.
const API_VERSION: &str = "0.14.0";

/// The version of Ollama's API.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    version: &'static str,
}

/// The version of Ollama whose API this is.
#[utoipa::path(
    get, path = "/api/version", tag = "Ollama",
    responses((status = 200, body = Version), Refusals<Refusal>)
)]
pub(crate) async fn version() -> Json<Version> {
    Json(Version { version: API_VERSION })
}

/// The capabilities of a model, by Ollama's names.
fn capabilities(known: &ModelDescription) -> Vec<&'static str> {
    let all = [
        ("completion", true),
        ("tools", known.takes_tools),
        ("thinking", known.reasons),
        ("insert", known.fills),
        ("embedding", true),
    ];
    all.into_iter().filter_map(|(name, can)| can.then_some(name)).collect()
}

fn details(known: &ModelDescription) -> Details {
    let ModelDescription { card, architecture, .. } = known;
    Details {
        parent_model: String::new(),
        format: card.format.to_owned(),
        family: architecture.clone(),
        families: vec![architecture.clone()],
        parameter_size: count(card.parameters),
        quantization_level: card.quantisation.clone(),
    }
}

/// In the keys of GGUF files, whatever the file.
fn model_info(name: &str, known: &ModelDescription) -> Map<String, Value> {
    let ModelDescription { card, architecture, .. } = known;
    let own = |key: &str| format!("{architecture}.{key}");
    let all = [
        ("general.architecture".to_owned(), json!(architecture)),
        ("general.basename".to_owned(), json!(name)),
        ("general.parameter_count".to_owned(), json!(card.parameters)),
        (own("context_length"), json!(card.context_length)),
        (own("embedding_length"), json!(card.hidden_size)),
        (own("block_count"), json!(card.layers)),
        (own("attention.head_count"), json!(card.heads)),
        (own("attention.head_count_kv"), json!(card.kv_heads)),
        (own("vocab_size"), json!(known.vocab_size)),
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

/// When the files of a model were written; at the start of the server where that is not known.
fn modified(app: &App, card: &ModelCard) -> String {
    let started = UNIX_EPOCH + Duration::from_secs(app.started);
    line::time(card.modified.unwrap_or(started))
}

/// What is known of a model; of one whose files were not read yet, the bytes of its weights.
fn known(entry: &PooledModel) -> Cow<'_, ModelDescription> {
    match entry.description() {
        Some(known) => Cow::Borrowed(known),
        None => {
            let bytes = entry.loader.as_ref().map_or(0, |loader| loader.file_bytes());
            let card = ModelCard { bytes, ..ModelCard::default() };
            Cow::Owned(ModelDescription { card, ..ModelDescription::default() })
        }
    }
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
