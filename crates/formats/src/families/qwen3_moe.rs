//! Qwen3-MoE: Qwen3 with routed experts, and no shared one.

use super::prelude::*;
use super::qwen2::used_window;
use super::qwen2_moe::{read, to_json};

pub(super) static QWEN3_MOE: Family = QWEN3_MOE_BASE;

/// The same for families that are similar.
pub(super) const QWEN3_MOE_BASE: Family = Family {
    name: "qwen3_moe",
    hf: HfRules {
        class: "Qwen3MoeForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 4,
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 768,
            })
        },
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        windows: |config, layers| Ok(vec![used_window(config)?; layers]),
        experts: |config, layers| read(config, layers, 0),
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules { name: "qwen3moe", ..BASE.gguf },
    names: NameTable {
        layer: &[NORMS, ATTENTION, QK_NORMS, MLP, ROUTER, EXPERTS, FUSED_EXPERTS],
        ..DENSE
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
    tiny: |layers| Hyperparameters {
        experts: Some(family::tiny_experts(layers)),
        ..family::tiny(layers)
    },
    ..BASE
};
