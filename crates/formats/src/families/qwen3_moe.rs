//! Qwen3-MoE: Qwen3 with routed experts, and no shared one.

use super::prelude::*;
use super::qwen2::used_window;
use super::qwen2_moe::{Defaults, read, to_json};

pub(super) static QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    hf_class: "Qwen3MoeForCausalLM",
    gguf_name: "qwen3moe",
    kv_heads: Some(4),
    declared: &[("attention_bias", false, &ATTENTION_BIASES)],
    names: NameTable {
        layer: &[NORMS, ATTENTION, QK_NORMS, MLP, ROUTER, EXPERTS, FUSED_EXPERTS],
        ..DENSE
    },
    windows: |config, layers| Ok(vec![used_window(config)?; layers]),
    experts: |config, layers| {
        let defaults = Defaults { count: 128, chosen: 8, width: 768 };
        read(config, layers, &defaults, 0)
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(
                model.rms("attn_norm"),
                model.grouped(at).with_head_norms(HeadNormSpec::EACH),
            ),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    to_json,
    tiny: |layers| Hyperparameters {
        experts: Some(family::tiny_experts(layers)),
        ..family::tiny(layers)
    },
    ..BASE
};
