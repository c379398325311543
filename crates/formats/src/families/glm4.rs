//! GLM-4: norms around both sublayers, a half of each head rotated in pairs of neighbours, gates
//! and ups in one matrix.

use super::prelude::*;

pub(super) static GLM4: Family = Family {
    name: "glm4",
    hf: HfRules {
        class: "Glm4ForCausalLM",
        rope: RopeLayout::Interleaved,
        defaults: || json!({"num_key_value_heads": 2, "head_dim": 128, "partial_rotary_factor": 0.5}),
        declared: &[("attention_bias", false, &QKV_BIASES)],
        to_json: |_| json!({"attention_bias": true}),
        written: &QKV_BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "glm4",
        rope: RopeLayout::Interleaved,
        aliases: &[("ffn_up.weight", "ffn_gate_up.weight")],
        ..BASE.gguf
    },
    joined: &[GATE_UP],
    names: NameTable {
        layer: &[
            &[
                ("input_layernorm.weight", "attn_norm.weight"),
                ("post_self_attn_layernorm.weight", "post_attention_norm.weight"),
                ("post_attention_layernorm.weight", "ffn_norm.weight"),
                ("post_mlp_layernorm.weight", "post_ffw_norm.weight"),
                ("mlp.gate_up_proj.weight", "ffn_gate_up.weight"),
            ],
            ATTENTION,
            QK_NORMS,
            MLP,
        ],
        ..DENSE
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at))
                .and_after(model.rms("post_attention_norm")),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at))
                .and_after(model.rms("post_ffw_norm")),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        (config.rope.layout, config.rope.dim) = (RopeLayout::Interleaved, 12);
        config
    },
    ..BASE
};
