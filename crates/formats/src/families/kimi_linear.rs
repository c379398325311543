//! Kimi Linear: Kimi Delta Attention in most layers, latent attention without rotary embedding in
//! the others, and experts of DeepSeek V3.

use super::deepseek_v3::{self, V3_BASE};
use super::prelude::*;

pub(super) static KIMI_LINEAR: Family = Family {
    name: "kimi_linear",
    hf: HfRules {
        class: "KimiLinearForCausalLM",
        defaults: || {
            let base = family::with(deepseek_v3::defaults(), delta::defaults());
            let own = json!({
                "q_lora_rank": null,
                "moe_intermediate_size": 1024,
                "first_k_dense_replace": 1,
                "routed_scaling_factor": 2.446,
                "n_group": 1,
                "topk_group": 1,
            });
            family::with(base, own)
        },
        fill: hf_fill,
        to_json: |config| {
            let mut json = experts::grouped_json(config);
            extend(&mut json, delta::to_json(config));
            json
        },
        ..V3_BASE.hf
    },
    gguf: GgufRules {
        name: "kimi-linear",
        is: |_, _| Ok(true),
        zero_heads: true,
        experts: GgufExperts { normalise: true, ..V3_BASE.gguf.experts },
        ..V3_BASE.gguf
    },
    delta: Some(DeltaFiles { fused: false, gguf_tiled: false, gguf_unsigned: false }),
    names: NameTable {
        layer: &[
            NORMS,
            LATENT_ATTENTION,
            KIMI_DELTA,
            MLP,
            BLOCK_SPARSE,
            &[
                ("block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"),
                ("block_sparse_moe.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("block_sparse_moe.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
                ("block_sparse_moe.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
            ],
        ],
        ..DENSE
    },
    layer: |model, at| {
        let latent = || model.latent_attention(at).into();
        let mixer = delta(model, at).unwrap_or_else(latent);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    fixed: |model| model.unrotated = vec![true; model.layers],
    tiny: |layers| {
        let mut config = (V3_BASE.tiny)(layers);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
        config.unrotated = vec![true; layers];
        let linear = |layer: usize| layer.is_multiple_of(2) && layers > 1;
        let spec = DeltaSpec {
            key_heads: 4,
            value_heads: 4,
            key_dim: 22,
            value_dim: 22,
            kernel: 4,
            ..DeltaSpec::default()
        };
        let delta = OfLayers { layers: (0..layers).map(linear).collect(), spec };
        Hyperparameters { delta: delta.some(), ..config }
    },
    ..V3_BASE
};

/// Kimi Delta Attention of the layer `at`, if it has that.
pub(super) fn delta(model: &Hyperparameters, at: usize) -> Option<OpSpec> {
    model.gated_delta(at).map(|delta| DeltaSpec { per_channel: true, ..delta }.into())
}

/// Names in its config.json, and the readers' names.
const NAMES: [(&str, &str); 6] = [
    ("num_experts_per_token", "num_experts_per_tok"),
    ("num_shared_experts", "n_shared_experts"),
    ("num_expert_group", "n_group"),
    ("moe_renormalize", "norm_topk_prob"),
    ("moe_router_activation_func", "scoring_func"),
    ("model_max_length", "max_position_embeddings"),
];

/// Gives the sizes in `linear_attn_config` the readers' names.
pub(super) fn fill_sizes(fields: &mut Map<String, Json>, linear: &Map<String, Json>) {
    let names = [
        ("head_dim", ["linear_key_head_dim", "linear_value_head_dim"]),
        ("num_heads", ["linear_num_key_heads", "linear_num_value_heads"]),
        ("short_conv_kernel_size", ["linear_conv_kernel_dim"; 2]),
    ];
    for (theirs, known) in names {
        for known in known {
            if let Some(value) = linear.get(theirs).cloned() {
                fields.entry(known).or_insert(value);
            }
        }
    }
}

/// Gives fields of its config.json the readers' names.
pub(super) fn fill_names(fields: &mut Map<String, Json>) {
    field_names::to_known(fields, &NAMES);
}

fn hf_fill(fields: &mut Map<String, Json>) {
    fill_names(fields);
    let Some(Json::Object(linear)) = fields.get("linear_attn_config").cloned() else { return };
    fill_sizes(fields, &linear);
    // Layers are counted from 1.
    let layers = fields.get("num_hidden_layers").and_then(Json::as_u64).unwrap_or(0);
    let attending = linear.get("full_attn_layers").and_then(Json::as_array);
    if let (Some(attending), true) = (attending, layers <= MAX_LAYERS as u64) {
        let attends = |number| attending.iter().any(|one| one.as_u64() == Some(number));
        let kind = |number| if attends(number) { "full_attention" } else { delta::LINEAR };
        fields.entry("layer_types").or_insert((1..=layers).map(kind).collect());
    }
}
