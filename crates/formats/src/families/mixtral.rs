//! Mixtral: Mistral with routed experts in every layer.

use super::llama::GGUF_NAME;
use super::prelude::*;

pub(super) static MIXTRAL: Family = Family {
    name: "mixtral",
    hf_class: "MixtralForCausalLM",
    gguf_name: GGUF_NAME,
    gguf_is: |keys, _| keys.has_experts(),
    gguf_rope: RopeLayout::Interleaved,
    gguf_experts: GgufExperts { width: |mlp, _| mlp, ..BASE.gguf_experts },
    kv_heads: Some(8),
    theta: 1e6,
    declared: &[],
    names: NameTable { layer: &[NORMS, ATTENTION, QK_NORMS, BLOCK_SPARSE], ..DENSE },
    windows: |config, layers| Ok(vec![config.opt_positive("sliding_window", MAX_TOKENS)?; layers]),
    experts: |config, layers| experts::local(config, layers, 8, 2),
    to_json: experts::local_json,
    tiny,
    ..BASE
};

fn tiny(layers: usize) -> Hyperparameters {
    let experts = ExpertsConfig { width: 104, ..family::tiny_experts(layers) };
    Hyperparameters { experts: Some(experts), ..family::tiny(layers) }
}
