//! GLM-4.5 and its like: attention of Llama over half of each head, experts of DeepSeek V3.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static GLM4_MOE: Family = Family {
    name: "glm4_moe",
    hf_class: "Glm4MoeForCausalLM",
    gguf_name: "glm4moe",
    gguf_aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
    gguf_experts: GgufExperts {
        scores: RouterScores::Sigmoid,
        normalise: false,
        leading_dense: true,
        ..BASE.gguf_experts
    },
    kv_heads: Some(8),
    rotary_share: 0.5,
    may_norm_heads: true,
    // The output projection has no bias here.
    declared: &[("attention_bias", false, &QKV_BIASES), ("use_qk_norm", false, &HEAD_NORMS)],
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
    experts: |config, layers| experts::sigmoid(config, layers, &DEFAULTS),
    to_json: |config| {
        let mut json = experts::grouped_json(config);
        json["attention_bias"] = json!(true);
        json["use_qk_norm"] = json!(config.declared_head_norms().is_some());
        json
    },
    written: &QKV_BIASES,
    tiny,
    ..BASE
};

const DEFAULTS: SigmoidDefaults = SigmoidDefaults {
    count: 128,
    chosen: 8,
    width: 1408,
    dense: 1,
    scale: 1.0,
    groups: 1,
    chosen_groups: 1,
};

fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.dim = 12;
    let experts = Some(deepseek_v3::tiny_experts(layers));
    Hyperparameters { experts, attention: family::NORMED_HEADS, ..config }
}
