//! Qwen3: Qwen2 without biases, with norms on the heads of queries and keys.

use super::qwen2;
use crate::config::family::{BASE, Family, HEAD_NORMS};

pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    hf_class: "Qwen3ForCausalLM",
    gguf_name: "qwen3",
    head_dim: Some(128),
    written: &HEAD_NORMS,
    windows: qwen2::windows,
    ..BASE
};
