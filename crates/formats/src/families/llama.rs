//! Llama 2 and 3, and models with the same architecture.

use super::prelude::*;

/// The name of GGUF files of Llama, and of Mistral and Mixtral too.
pub(super) const GGUF_NAME: &str = "llama";

pub(super) static LLAMA: Family = Family {
    name: "llama",
    hf: HfRules { class: "LlamaForCausalLM", ..BASE.hf },
    gguf: GgufRules { name: GGUF_NAME, rope: RopeLayout::Interleaved, ..BASE.gguf },
    tiny,
    ..BASE
};

fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    };
    config
}
