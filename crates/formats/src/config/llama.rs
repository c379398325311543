//! Llama 2 and 3, and the many models that are Llama in all but name.

use super::RopeLayout;
use super::family::Family;
use crate::names::DENSE;

/// GGUF files of Mistral call themselves `llama` too.
pub(super) static LLAMA: Family = Family {
    name: "llama",
    hf_class: "LlamaForCausalLM",
    gguf_name: Some("llama"),
    gguf_rope: RopeLayout::Interleaved,
    head_dim: None,
    biases: &[],
    names: &DENSE,
    windows: |_, layers| Ok(vec![None; layers]),
};
