//! Llama 2 and 3, and the many models that are Llama in all but name.

use super::RopeLayout;
use super::family::{BASE, Family};
use super::mixtral::MIXTRAL;

/// GGUF files of Mistral and Mixtral call themselves `llama` too.
pub(super) static LLAMA: Family = Family {
    name: "llama",
    hf_class: "LlamaForCausalLM",
    gguf_name: Some("llama"),
    gguf_variant: |keys| Ok(keys.has_experts()?.then_some(&MIXTRAL)),
    gguf_rope: RopeLayout::Interleaved,
    ..BASE
};
