//! Trinity: gates of the outputs of attention, windows on most layers, the others without rotary
//! embedding, norms around each sublayer, and experts of DeepSeek V3.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static AFMOE: Family = Family {
    name: "afmoe",
    hf: HfRules {
        class: "AfmoeForCausalLM",
        defaults: || {
            json!({
                "head_dim": 128,
                "num_experts": 64,
                "num_experts_per_tok": 6,
                "n_shared_experts": 2,
                "first_k_dense_replace": 1,
                "moe_intermediate_size": 1408,
                "n_group": 1,
                "topk_group": 1,
            })
        },
        declared: &[],
        fill: |fields| field_names::to_known(fields, &NAMES),
        windows: |config, layers| {
            let window = config.nullable("sliding_window", MAX_TOKENS, Some(1024))?;
            if let Some(windows) = windows_by_type(config, layers, window)? {
                return Ok(windows);
            }
            let period = config.setting("global_attn_every_n_layers", MAX_LAYERS, PERIOD)?;
            let slides = |layer: usize| !(layer + 1).is_multiple_of(period);
            Ok((0..layers).map(|layer| window.filter(|_| slides(layer))).collect())
        },
        experts: experts::sigmoid,
        more: |config, model| {
            let scaled = config.flag("mup_enabled")? == Some(true);
            model.embedding_scale = if scaled { embedding_scale(model) } else { 1.0 };
            Ok(())
        },
        to_json: |config| {
            let mut json = field_names::to_own(experts::grouped_json(config), &NAMES);
            json["mup_enabled"] = json!(config.embedding_scale == embedding_scale(config));
            json
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "afmoe",
        window_period: Some(PERIOD),
        experts: SIGMOID_EXPERTS,
        // llama.cpp scales embeddings always.
        more: |keys, _, model| {
            if keys.opt_above_zero(rows::EMBEDDING_SCALE.gguf[0])?.is_none() {
                model.embedding_scale = embedding_scale(model);
            }
            Ok(())
        },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            ATTENTION,
            QK_NORMS,
            MLP,
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
            &[
                ("input_layernorm.weight", "attn_norm.weight"),
                ("post_attention_layernorm.weight", "post_attention_norm.weight"),
                ("pre_mlp_layernorm.weight", "ffn_norm.weight"),
                ("post_mlp_layernorm.weight", "post_ffw_norm.weight"),
                ("self_attn.gate_proj.weight", "attn_gate.weight"),
                ("mlp.router.gate.weight", "ffn_gate_inp.weight"),
                ("mlp.expert_bias", "exp_probs_b.bias"),
            ],
        ],
        ..DENSE
    },
    // A factor of 1 is written too, for files without one have that of llama.cpp.
    rows: &[FieldRow { absent: rows::Absent::Kept, ..rows::EMBEDDING_SCALE }],
    fixed: |model| model.unrotated = model.windows.iter().map(Option::is_none).collect(),
    layer: |model, at| {
        let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention.with_gate(OutputGate::EACH))
                .and_after(model.rms("post_attention_norm")),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at))
                .and_after(model.rms("post_ffw_norm")),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.windows = (0..layers).map(|layer| (layer % 3 < 2).then_some(24)).collect();
        config.embedding_scale = embedding_scale(&config);
        let experts = deepseek_v3::tiny_experts(layers);
        Hyperparameters { experts: Some(ExpertsConfig { groups: None, ..experts }), ..config }
    },
    ..BASE
};

/// Names in config.json, and those of the readers.
const NAMES: [(&str, &str); 6] = [
    ("num_experts", "n_routed_experts"),
    ("num_shared_experts", "n_shared_experts"),
    ("num_dense_layers", "first_k_dense_replace"),
    ("score_func", "scoring_func"),
    ("route_norm", "norm_topk_prob"),
    ("route_scale", "routed_scaling_factor"),
];

/// Layers to one without a window, where files do not say.
const PERIOD: usize = 4;

fn embedding_scale(model: &Hyperparameters) -> f32 {
    (model.hidden_size as f32).sqrt()
}
