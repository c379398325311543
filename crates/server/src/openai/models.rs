//! `GET /v1/models`: the one model that is served.

use api::ModelInfo;
use serde_json::{Value, json};

/// The list of models. Codex names its version and insists on a second list, of models with the
/// instructions that it gives them; as this server has no instructions for it, that one is empty.
pub(crate) fn list(info: &ModelInfo, created: u64, query: Option<&str>) -> Value {
    let mut list = json!({ "object": "list", "data": [one(info, created)] });
    if query.is_some_and(|query| query.contains("client_version=")) {
        list["models"] = json!([]);
    }
    list
}

/// One model. The context length is an extension, under the names that two other servers use;
/// `meta` is what clients of llama.cpp's server look into.
pub(crate) fn one(info: &ModelInfo, created: u64) -> Value {
    json!({
        "id": info.name,
        "object": "model",
        "created": created,
        "owned_by": "gannet",
        "context_length": info.context_length,
        "max_model_len": info.context_length,
        "meta": { "n_vocab": info.vocab_size, "n_ctx": info.context_length },
    })
}
