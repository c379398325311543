//! `GET /v1/models`: the one model that is served.

use api::ModelInfo;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The models that are served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
    /// Models with the instructions that a client of Codex's kind gives them. It names its version
    /// and insists on this list; as this server has no instructions for it, it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    models: Option<Vec<Map<String, Value>>>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Model)]
pub(crate) struct ModelObject {
    id: String,
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// Tokens that the context holds; an extension.
    context_length: usize,
    /// As `context_length`.
    max_model_len: usize,
    meta: ModelMeta,
}

/// What clients of llama.cpp's server look into.
#[derive(Debug, Serialize, ToSchema)]
struct ModelMeta {
    n_vocab: usize,
    n_ctx: usize,
}

/// The list of models, for a client that asked with `query`.
pub(crate) fn list(info: &ModelInfo, created: u64, query: Option<&str>) -> ModelList {
    let insists = query.is_some_and(|query| query.contains("client_version="));
    let models = insists.then(Vec::new);
    ModelList { object: "list", data: vec![one(info, created)], models }
}

/// One model.
pub(crate) fn one(info: &ModelInfo, created: u64) -> ModelObject {
    ModelObject {
        id: info.name.clone(),
        object: "model",
        created,
        owned_by: "gannet",
        context_length: info.context_length,
        max_model_len: info.context_length,
        meta: ModelMeta { n_vocab: info.vocab_size, n_ctx: info.context_length },
    }
}
