//! Seed-OSS: Llama with biases on queries, keys and values.

use super::prelude::*;

pub(super) static SEED_OSS: Family = Family {
    name: "seed_oss",
    hf_class: "SeedOssForCausalLM",
    gguf_name: "seed_oss",
    gguf_aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
    defaults: || json!({"num_key_value_heads": 8, "head_dim": 128}),
    declared: &[
        ("attention_bias", true, &QKV_BIASES),
        ("attention_out_bias", false, &["attn_output.bias"]),
        ("mlp_bias", false, &["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]),
    ],
    to_json: |_| json!({"attention_bias": true}),
    written: &QKV_BIASES,
    ..BASE
};
