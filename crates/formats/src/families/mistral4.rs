//! Mistral 4: latent attention whose queries grow with their positions, and experts of which a
//! softmax chooses.

use super::deepseek_v2::{self, DEEPSEEK_BASE, tiny_latent};
use super::ministral3::{gguf_growth, hf_growth};
use super::prelude::*;

pub(super) static MISTRAL4: Family = Family {
    name: "mistral4",
    hf: HfRules {
        class: "Mistral4ForCausalLM",
        wrapper: super::mistral::WRAPPER,
        experts: experts::softmax,
        defaults: || {
            let own = json!({
                "q_lora_rank": 1024,
                "kv_lora_rank": 256,
                "qk_nope_head_dim": 64,
                "n_routed_experts": 128,
                "n_shared_experts": 1,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 2048,
                "n_group": 1,
                "topk_group": 1,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 10000.0,
                    "factor": 128.0,
                    "original_max_position_embeddings": 8192,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                    (rope::SLOPE): 0.1,
                },
            });
            family::with(deepseek_v2::latent(), own)
        },
        more: hf_growth,
        to_json: |config| {
            let mut json = experts::grouped_json(config);
            let beta = config.query_growth.map(|growth| growth.beta);
            let fields = json!({"scoring_func": null, "topk_method": null, rope::SLOPE: beta});
            extend(&mut json, fields);
            json
        },
        ..DEEPSEEK_BASE.hf
    },
    gguf: GgufRules {
        name: "mistral4",
        experts: GgufExperts { normalise: true, ..DEEPSEEK_BASE.gguf.experts },
        more: gguf_growth,
        ..DEEPSEEK_BASE.gguf
    },
    names: NameTable { modalities: MISTRAL_VISION, ..DEEPSEEK_BASE.names },
    layer: |model, at| {
        let attention = LatentSpec { growth: model.query_growth, ..model.latent_attention(at) };
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    fixed,
    tiny: |layers| {
        let experts = ExpertsConfig {
            shared_width: 40,
            scale: 1.5,
            groups: Some(ExpertGroups { count: 3, chosen: 2, rank: GroupRank::BestTwo }),
            ..family::tiny_experts(layers)
        };
        let mut config = tiny_latent(layers, Some(40), experts);
        (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.0);
        config.attention_scale = family::tiny_yarn_scale(config.head_dim);
        config.query_growth = Some(Growth { beta: 0.1, every: 64, offset: 0 });
        config
    },
    ..DEEPSEEK_BASE
};

/// Groups are ranked by their two best experts.
pub(super) fn fixed(model: &mut Hyperparameters) {
    if let Some(groups) = model.experts.as_mut().and_then(|experts| experts.groups.as_mut()) {
        groups.rank = GroupRank::BestTwo;
    }
}
