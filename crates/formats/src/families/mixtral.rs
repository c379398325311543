//! Mixtral: Mistral with routed experts in every layer.

use super::llama::GGUF_NAME;
use super::prelude::*;

pub(super) static MIXTRAL: Family = Family {
    name: "mixtral",
    hf: HfRules {
        class: "MixtralForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "rope_theta": 1e6,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            })
        },
        declared: &[],
        windows: |config, layers| {
            Ok(vec![config.opt_positive("sliding_window", MAX_TOKENS)?; layers])
        },
        experts: experts::local,
        to_json: experts::local_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: GGUF_NAME,
        is: |keys, _| keys.has_experts(),
        rope: RopeLayout::Interleaved,
        experts: GgufExperts { width: |mlp, _| mlp, ..BASE.gguf.experts },
        ..BASE.gguf
    },
    names: NameTable { layer: &[NORMS, ATTENTION, QK_NORMS, BLOCK_SPARSE], ..DENSE },
    tiny,
    ..BASE
};

fn tiny(layers: usize) -> Hyperparameters {
    let experts = ExpertsConfig { width: 104, ..family::tiny_experts(layers) };
    Hyperparameters { experts: Some(experts), ..family::tiny(layers) }
}
