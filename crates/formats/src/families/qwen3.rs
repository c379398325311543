//! Qwen3: Qwen2 without biases, with norms on the heads of queries and keys.

use super::prelude::*;
use super::qwen2;

pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    hf_class: "Qwen3ForCausalLM",
    gguf_name: "qwen3",
    head_dim: Some(128),
    head_norms: HeadNorms::Always,
    declared: &[("attention_bias", false, &ATTENTION_BIASES)],
    windows: qwen2::windows,
    tiny: |layers| ModelConfig {
        tied_embeddings: true,
        attention: family::NORMED_HEADS,
        ..family::tiny(layers)
    },
    ..BASE
};
