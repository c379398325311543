//! DeepSeek V3 and R1 (Kimi K2, Moonlight and others with it): V2 with other routers.

use super::deepseek_v2::DEEPSEEK_BASE;
use crate::config::family::Family;
use crate::config::hf::experts::{self, SigmoidDefaults};

pub(super) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    hf_class: "DeepseekV3ForCausalLM",
    gguf_is: |keys| keys.has_sigmoid_router(),
    more_layers: true,
    experts: |config, layers| experts::sigmoid(config, layers, &V3),
    ..DEEPSEEK_BASE
};

const V3: SigmoidDefaults = SigmoidDefaults {
    count: 256,
    chosen: 8,
    width: 2048,
    dense: 3,
    scale: 2.5,
    groups: 8,
    chosen_groups: 4,
};
