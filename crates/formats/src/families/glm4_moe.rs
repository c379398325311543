//! GLM-4.5 and its like: attention of Llama over half of each head, experts of DeepSeek V3.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static GLM4_MOE: Family = Family {
    name: "glm4_moe",
    hf: HfRules {
        class: "Glm4MoeForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "partial_rotary_factor": 0.5,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 1408,
                "first_k_dense_replace": 1,
                "n_group": 1,
                "topk_group": 1,
            })
        },
        // The output projection has no bias here.
        declared: &[("attention_bias", false, &QKV_BIASES), ("use_qk_norm", false, &HEAD_NORMS)],
        experts: experts::sigmoid,
        to_json: |config| {
            let mut json = experts::grouped_json(config);
            json["attention_bias"] = json!(true);
            json["use_qk_norm"] = json!(config.declared_head_norms().is_some());
            json
        },
        written: &QKV_BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "glm4moe",
        aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
        experts: GgufExperts {
            scores: RouterScores::Sigmoid,
            normalise: false,
            leading_dense: true,
            ..BASE.gguf.experts
        },
        ..BASE.gguf
    },
    may_norm_heads: true,
    names: NameTable {
        layer: &[NORMS, ATTENTION, QK_NORMS, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, SHARED_EXPERTS],
        ..DENSE
    },
    layer: |model, at| {
        let head_norms = model.declared_head_norms();
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), GroupedSpec { head_norms, ..model.grouped(at) }),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    more_layers: true,
    mtp: Some(deepseek_v3::NEXTN_LAYERS),
    tiny,
    ..BASE
};

fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.dim = 12;
    let experts = Some(deepseek_v3::tiny_experts(layers));
    Hyperparameters { experts, grouped: family::NORMED_HEADS, ..config }
}
