//! GLM-4.7-Flash: DeepSeek V3 under another name.

use super::deepseek_v3::V3_BASE;
use super::prelude::*;

pub(super) static GLM4_MOE_LITE: Family = Family {
    name: "glm4_moe_lite",
    hf_class: "Glm4MoeLiteForCausalLM",
    hf_types: &[],
    // GGUF files have the name of DeepSeek's.
    gguf_is: |_, _| Ok(false),
    experts: |config, layers| experts::sigmoid(config, layers, &DEFAULTS),
    tiny: |layers| {
        let mut config = (V3_BASE.tiny)(layers);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config
    },
    ..V3_BASE
};

const DEFAULTS: SigmoidDefaults = SigmoidDefaults {
    count: 64,
    chosen: 4,
    width: 1536,
    dense: 1,
    scale: 1.8,
    groups: 1,
    chosen_groups: 1,
};
