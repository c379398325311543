//! Qwen3.5-MoE and later: Qwen3.5 with the experts of Qwen3-Next, in every layer.

use super::prelude::*;
use super::qwen2_moe;
use super::qwen3_5::{APART, QWEN_WRAPPED};
use super::qwen3_next::{self, MIXTURE, QWEN_DELTA, shared_width, tiny, tiny_experts};

pub(super) static QWEN3_5_MOE: Family = Family {
    name: "qwen3_5_moe",
    hf: HfRules {
        class: "Qwen3_5MoeForCausalLM",
        wrapper: "Qwen3_5MoeForConditionalGeneration",
        types: &[TEXT],
        defaults: || {
            family::with(
                qwen3_next::defaults(),
                json!({"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8}),
            )
        },
        experts: |config, layers| {
            let experts = qwen2_moe::read(config, layers, shared_width(config)?)?;
            // The reference library normalises whatever config.json says.
            Ok(experts.map(|experts| ExpertsConfig { normalise: true, ..experts }))
        },
        to_json: |config| {
            let mut json = qwen2_moe::to_json(config);
            extend(&mut json, delta::to_json(config));
            extend(&mut json, json!({"model_type": TEXT}));
            json
        },
        ..QWEN_DELTA.hf
    },
    gguf: GgufRules {
        name: "qwen35moe",
        experts: GgufExperts { shared: true, ..BASE.gguf.experts },
        sections: true,
        ..QWEN_DELTA.gguf
    },
    names: NameTable { layer: MIXTURE, ..QWEN_WRAPPED },
    delta: Some(APART),
    tiny: |layers| Hyperparameters { experts: Some(tiny_experts(layers)), ..tiny(layers) },
    mtp: Some(qwen3_next::ATTENTION_LAYERS),
    ..QWEN_DELTA
};

const TEXT: &str = "qwen3_5_moe_text";
