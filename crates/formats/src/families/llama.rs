//! Llama 2 and 3, and the many models that are Llama in all but name.

use crate::config::RopeLayout;
use crate::config::family::{BASE, Family};

/// The name of GGUF files of Llama, and of Mistral and Mixtral too.
pub(super) const GGUF_NAME: &str = "llama";

pub(super) static LLAMA: Family = Family {
    name: "llama",
    hf_class: "LlamaForCausalLM",
    gguf_name: GGUF_NAME,
    gguf_rope: RopeLayout::Interleaved,
    ..BASE
};
