//! GPT-2: embeddings of positions, LayerNorm, MLPs without gates, biases everywhere, matrices with
//! inputs first.

use super::prelude::*;

pub(super) static GPT2: Family = Family {
    name: "gpt2",
    hf: HfRules {
        class: "GPT2LMHeadModel",
        eps: "layer_norm_epsilon",
        declared: &[("scale_attn_by_inverse_layer_idx", false, &[])],
        transposed: &["attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"],
        activation,
        fill: hf_fill,
        to_json: |config| {
            let names = NAMES.iter().copied().zip([
                config.hidden_size,
                config.layers,
                config.heads,
                config.context_length,
                config.intermediate_size,
            ]);
            let mut json = json!({"activation_function": "gelu_new"});
            names.for_each(|((theirs, _), value)| json[theirs] = json!(value));
            json
        },
        written: &NORM_BIASES_OF_LAYER,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "gpt2",
        activation: Activation::GeluTanh,
        eps: &[family::LAYER_EPS],
        ..BASE.gguf
    },
    joined: &family::QKV_AND_BIASES,
    names: NameTable {
        globals: &[
            ("transformer.wte.weight", "token_embd.weight"),
            ("transformer.wpe.weight", "position_embd.weight"),
            ("transformer.ln_f.weight", "output_norm.weight"),
            ("transformer.ln_f.bias", "output_norm.bias"),
            ("lm_head.weight", "output.weight"),
        ],
        layer_prefix: "transformer.h.",
        layer: &[LAYER],
        ignored: &[".attn.bias", ".attn.masked_bias"],
        // As OpenAI's weights are published.
        others: &[NameTable {
            globals: &[
                ("wte.weight", "token_embd.weight"),
                ("wpe.weight", "position_embd.weight"),
                ("ln_f.weight", "output_norm.weight"),
                ("ln_f.bias", "output_norm.bias"),
            ],
            layer_prefix: "h.",
            layer: &[LAYER],
            ..DENSE
        }],
        ..DENSE
    },
    layer: |model, at| {
        let norm = |name| model.layer_norm(name, Presence::Expected);
        let mlp = MlpSpec { gated: false, biased: true, ..model.mlp(at) };
        Layer::of([
            Sublayer::new(norm("attn_norm"), model.grouped(at).with_biases(Biases::All)),
            Sublayer::new(norm("ffn_norm"), mlp),
        ])
    },
    head: |model| HeadSpec {
        norm: Some(model.layer_norm("output_norm", Presence::Expected)),
        ..parts::head(model)
    },
    fixed: |model| {
        model.positions = Some(PositionTable { rows: model.context_length, first: 0 });
        model.unrotated = vec![true; model.layers];
    },
    tiny: |layers| Hyperparameters {
        kv_heads: 4,
        context_length: 1024,
        activation: Activation::GeluTanh,
        tied_embeddings: true,
        ..family::tiny(layers)
    },
    ..BASE
};

const LAYER: NamePairs = &[
    ("ln_1.weight", "attn_norm.weight"),
    ("ln_1.bias", "attn_norm.bias"),
    ("attn.c_attn.weight", "attn_qkv.weight"),
    ("attn.c_attn.bias", "attn_qkv.bias"),
    ("attn.c_proj.weight", "attn_output.weight"),
    ("attn.c_proj.bias", "attn_output.bias"),
    ("ln_2.weight", "ffn_norm.weight"),
    ("ln_2.bias", "ffn_norm.bias"),
    ("mlp.c_fc.weight", "ffn_up.weight"),
    ("mlp.c_fc.bias", "ffn_up.bias"),
    ("mlp.c_proj.weight", "ffn_down.weight"),
    ("mlp.c_proj.bias", "ffn_down.bias"),
];

const NORM_BIASES_OF_LAYER: [&str; 2] = ["attn_norm.bias", "ffn_norm.bias"];

/// Names in its config.json, and the readers' names.
const NAMES: [(&str, &str); 5] = [
    ("n_embd", "hidden_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
    ("n_inner", "intermediate_size"),
];

fn hf_fill(fields: &mut Map<String, Json>) {
    for (theirs, known) in NAMES {
        if let Some(value) = fields.get(theirs).filter(|value| !value.is_null()).cloned() {
            fields.entry(known).or_insert(value);
        }
    }
    if let Some(hidden) = fields.get("hidden_size").and_then(Json::as_u64) {
        fields.entry("intermediate_size").or_insert(json!(hidden.saturating_mul(4)));
    }
}

fn activation(config: Object) -> Result<Activation> {
    const KEY: &str = "activation_function";
    match config.text(KEY)? {
        None | Some("gelu_new" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => {
            let problem = format!("expected gelu_new or gelu_pytorch_tanh, found {}", shown(other));
            Err(config.error(KEY, problem))
        }
    }
}
