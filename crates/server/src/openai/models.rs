//! `GET /v1/models`: the one model that is served.

use api::ModelInfo;
use serde_json::{Value, json};

/// The list of models.
pub(crate) fn list(info: &ModelInfo, created: u64) -> Value {
    json!({ "object": "list", "data": [one(info, created)] })
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
