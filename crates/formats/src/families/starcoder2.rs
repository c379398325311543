//! StarCoder2: LayerNorm, and MLPs without gates, with biases everywhere.

use super::prelude::*;

pub(super) static STARCODER2: Family = Family {
    name: "starcoder2",
    hf: HfRules {
        class: "Starcoder2ForCausalLM",
        eps: "norm_epsilon",
        defaults: || json!({"num_key_value_heads": 2}),
        declared: &[("use_bias", true, &BIASES)],
        windows: |config, layers| {
            Ok(vec![config.opt_positive("sliding_window", MAX_TOKENS)?; layers])
        },
        activation: super::gemma3::gelu,
        to_json: |_| json!({"use_bias": true, "hidden_act": "gelu_pytorch_tanh"}),
        written: &BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "starcoder2",
        activation: Activation::GeluTanh,
        eps: &[family::LAYER_EPS],
        ..BASE.gguf
    },
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("model.norm.bias", "output_norm.bias"),
            ("lm_head.weight", "output.weight"),
        ],
        layer: &[
            NORMS,
            NORM_BIASES,
            ATTENTION,
            QK_NORMS,
            &[
                ("mlp.c_fc.weight", "ffn_up.weight"),
                ("mlp.c_fc.bias", "ffn_up.bias"),
                ("mlp.c_proj.weight", "ffn_down.weight"),
                ("mlp.c_proj.bias", "ffn_down.bias"),
            ],
        ],
        ..DENSE
    },
    layer: |model, at| {
        let norm = |name| model.layer_norm(name, Presence::Expected);
        let mlp = MlpSpec { gated: false, ..model.mlp(at) };
        Layer::of([
            Sublayer::new(norm("attn_norm"), model.grouped(at)),
            Sublayer::new(norm("ffn_norm"), mlp),
        ])
    },
    head: |model| HeadSpec {
        norm: Some(model.layer_norm("output_norm", Presence::Expected)),
        ..parts::head(model)
    },
    tiny: |layers| {
        let (activation, windows) = (Activation::GeluTanh, vec![Some(24); layers]);
        Hyperparameters { activation, windows, tied_embeddings: true, ..family::tiny(layers) }
    },
    ..BASE
};

/// Biases of every layer.
const BIASES: [&str; 8] = [
    "attn_norm.bias",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "ffn_norm.bias",
    "ffn_up.bias",
    "ffn_down.bias",
];
