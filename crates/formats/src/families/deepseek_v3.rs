//! DeepSeek V3 and R1 (Kimi K2, Moonlight and others with it): V2 with other routers.

use super::deepseek_v2::{self, DEEPSEEK_BASE};
use super::prelude::*;

pub(super) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    hf: HfRules {
        class: "DeepseekV3ForCausalLM",
        wrapper: "KimiK25ForConditionalGeneration",
        types: &["kimi_k2"],
        ..V3_BASE.hf
    },
    gguf: GgufRules {
        is: |keys, file| match gguf::experts::scores(keys)? {
            Some(scores) => Ok(scores == RouterScores::Sigmoid),
            // Files of GLM-4.7-Flash do not say; V2 has no biases for the choice of experts.
            None => {
                Ok(file.tensors().iter().any(|tensor| tensor.source_name.ends_with(CHOICE_BIAS)))
            }
        },
        ..V3_BASE.gguf
    },
    mtp: Some(NEXTN_LAYERS),
    ..V3_BASE
};

/// What families with routers of this kind have in common.
pub(super) const V3_BASE: Family = Family {
    hf: HfRules { defaults, experts: experts::sigmoid, ..DEEPSEEK_BASE.hf },
    gguf: GgufRules {
        experts: GgufExperts { scores: RouterScores::Sigmoid, ..DEEPSEEK_BASE.gguf.experts },
        ..DEEPSEEK_BASE.gguf
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.latent_attention(at)),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    more_layers: true,
    tiny,
    ..DEEPSEEK_BASE
};

/// Layers of multi-token prediction after the last one, which have experts.
pub(super) const NEXTN_LAYERS: MtpRules =
    MtpRules { input: MtpInput::Joined, last: with_experts, names: &[NEXTN] };

/// Gives a layer experts, where the model has any.
pub(super) fn with_experts(model: &mut Hyperparameters, at: usize) {
    if let Some(experts) = &mut model.experts {
        experts.layers[at] = true;
    }
}

const CHOICE_BIAS: &str = "exp_probs_b.bias";

/// Defaults of the configuration class.
pub(super) fn defaults() -> Json {
    let experts = json!({
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
    });
    family::with(deepseek_v2::latent(), experts)
}

fn tiny(layers: usize) -> Hyperparameters {
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
