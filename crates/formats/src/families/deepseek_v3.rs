//! DeepSeek V3 and R1 (Kimi K2, Moonlight and others with it): V2 with other routers.

use super::deepseek_v2::{self, DEEPSEEK_BASE};
use super::prelude::*;

pub(super) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    hf_class: "DeepseekV3ForCausalLM",
    hf_wrapper: "KimiK25ForConditionalGeneration",
    hf_types: &["kimi_k2"],
    gguf_is: |keys| keys.has_sigmoid_router(),
    experts: |config, layers| experts::sigmoid(config, layers, &V3),
    ..V3_BASE
};

/// What families with routers of this kind have in common.
pub(super) const V3_BASE: Family = Family {
    required: |config, layer| match config.experts_of(layer) {
        Some(_) => &["exp_probs_b.bias"],
        None => &[],
    },
    more_layers: true,
    tiny,
    ..DEEPSEEK_BASE
};

pub(super) const V3: SigmoidDefaults = SigmoidDefaults {
    count: 256,
    chosen: 8,
    width: 2048,
    dense: 3,
    scale: 2.5,
    groups: 8,
    chosen_groups: 4,
};

fn tiny(layers: usize) -> ModelConfig {
    let mut config = deepseek_v2::tiny_latent(layers, Some(40), tiny_experts(layers));
    (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.1);
    config
}

/// Small experts of this kind.
pub(super) fn tiny_experts(layers: usize) -> ExpertsConfig {
    ExpertsConfig {
        shared_width: 40,
        scores: RouterScores::Sigmoid,
        scale: 2.5,
        layers: (0..layers).map(|layer| layer > 0).collect(),
        groups: Some(ExpertGroups { count: 3, chosen: 2, rank: GroupRank::BestTwo }),
        ..family::tiny_experts(layers)
    }
}
