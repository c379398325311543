//! Seed-OSS: Llama with biases on queries, keys and values.

use super::prelude::*;

pub(super) static SEED_OSS: Family = Family {
    name: "seed_oss",
    hf: HfRules {
        class: "SeedOssForCausalLM",
        defaults: || json!({"num_key_value_heads": 8, "head_dim": 128}),
        declared: &[
            ("attention_bias", true, &QKV_BIASES),
            ("attention_out_bias", false, &["attn_output.bias"]),
            ("mlp_bias", false, &["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]),
        ],
        to_json: |_| json!({"attention_bias": true}),
        written: &QKV_BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "seed_oss",
        aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
        ..BASE.gguf
    },
    ..BASE
};
