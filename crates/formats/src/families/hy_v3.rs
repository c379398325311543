//! Hy3: Llama with norms of heads, and experts of DeepSeek V3 with names of their own.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static HY_V3: Family = Family {
    name: "hy_v3",
    hf: HfRules {
        class: "HYV3ForCausalLM",
        defaults: || {
            json!({
                "head_dim": 128,
                "rope_theta": 11_158_840.0,
                "n_shared_experts": 1,
                "first_k_dense_replace": 1,
            })
        },
        declared: &[("attention_bias", false, &ATTENTION_BIASES), ("mlp_bias", false, &[])],
        fill: |fields| field_names::to_known(fields, &NAMES),
        experts: experts::sigmoid,
        to_json: |config| field_names::to_own(experts::grouped_json(config), &NAMES),
        ..BASE.hf
    },
    gguf: GgufRules { name: "hy_v3", experts: SIGMOID_EXPERTS, ..BASE.gguf },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            EXPERTS,
            FUSED_EXPERTS,
            &[
                ("mlp.router.gate.weight", "ffn_gate_inp.weight"),
                ("mlp.expert_bias", "exp_probs_b.bias"),
                ("mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight"),
                ("mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight"),
            ],
        ],
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
    more_layers: true,
    tiny: |layers| {
        let experts = deepseek_v3::tiny_experts(layers);
        let experts = Some(ExpertsConfig { groups: None, ..experts });
        Hyperparameters { experts, ..family::tiny(layers) }
    },
    ..BASE
};

/// Names in config.json, and those of the readers.
const NAMES: [(&str, &str); 3] = [
    ("num_experts", "n_routed_experts"),
    ("num_shared_experts", "n_shared_experts"),
    ("router_scaling_factor", "routed_scaling_factor"),
];
