//! Qwen3-MoE: Qwen3 with routed experts, and no shared one.

use super::qwen2::used_window;
use super::qwen2_moe::{Defaults, NAMES, read, to_json};
use crate::config::family::{BASE, Family, HEAD_NORMS};

pub(super) static QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    hf_class: "Qwen3MoeForCausalLM",
    gguf_name: "qwen3moe",
    kv_heads: Some(4),
    names: &NAMES,
    windows: |config, layers| Ok(vec![used_window(config)?; layers]),
    experts: |config, layers| {
        let defaults = Defaults { count: 128, chosen: 8, width: 768 };
        read(config, layers, &defaults, 0)
    },
    to_json,
    written: &HEAD_NORMS,
    ..BASE
};
