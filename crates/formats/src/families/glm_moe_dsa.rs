//! GLM-5: DeepSeek V3.2, in which layers may attend to the positions that an earlier one chose.

use super::deepseek_v3;
use super::deepseek_v32::{self, INDEXED, INDEXED_LAYERS};
use super::prelude::*;

pub(super) static GLM_MOE_DSA: Family = Family {
    name: "glm_moe_dsa",
    hf: HfRules {
        class: "GlmMoeDsaForCausalLM",
        more: |config, model| index::read(config, RopeLayout::Interleaved, model),
        defaults: || {
            let base = family::with(deepseek_v3::defaults(), index::defaults(32));
            let own = json!({
                "q_lora_rank": 2048,
                "qk_nope_head_dim": 192,
                "v_head_dim": 256,
                "n_group": 1,
                "topk_group": 1,
            });
            family::with(base, own)
        },
        ..INDEXED.hf
    },
    gguf: GgufRules {
        name: "glm-dsa",
        is: |_, _| Ok(true),
        more: |keys, file, model| gguf::index::read(keys, file, RopeLayout::Interleaved, model),
        ..INDEXED.gguf
    },
    tiny: |layers| {
        let mut config = deepseek_v32::tiny(layers, RopeLayout::Interleaved);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
        if let Some(index) = &mut config.index {
            // A stage of a model of two or of four layers has one layer, which needs its own.
            index.layers = (0..layers).map(|layer| layers != 3 || layer % 2 == 0).collect();
        }
        config
    },
    mtp: Some(INDEXED_LAYERS),
    ..INDEXED
};
