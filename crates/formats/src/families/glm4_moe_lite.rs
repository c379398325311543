//! GLM-4.7-Flash: DeepSeek V3 under another name.

use super::deepseek_v3::{self, V3_BASE};
use super::prelude::*;

pub(super) static GLM4_MOE_LITE: Family = Family {
    name: "glm4_moe_lite",
    hf: HfRules {
        class: "Glm4MoeLiteForCausalLM",
        types: &[],
        defaults: || {
            let own = json!({
                "n_routed_experts": 64,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 1536,
                "first_k_dense_replace": 1,
                "routed_scaling_factor": 1.8,
                "n_group": 1,
                "topk_group": 1,
            });
            family::with(deepseek_v3::defaults(), own)
        },
        ..V3_BASE.hf
    },
    gguf: GgufRules {
        // GGUF files have the name of DeepSeek's.
        is: |_, _| Ok(false),
        ..V3_BASE.gguf
    },
    tiny: |layers| {
        let mut config = (V3_BASE.tiny)(layers);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config
    },
    mtp: Some(deepseek_v3::NEXTN_LAYERS),
    ..V3_BASE
};
