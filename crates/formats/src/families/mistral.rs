//! Mistral: Llama with a sliding window on all layers, or on none.

use super::llama::GGUF_NAME;
use crate::config::family::{self, BASE, Family, Windows};
use crate::config::hf::{window, windows_by_type};
use crate::config::{ModelConfig, RopeLayout};
use crate::error::Result;
use crate::json::Object;

pub(super) static MISTRAL: Family = Family {
    name: "mistral",
    hf_class: "MistralForCausalLM",
    gguf_name: GGUF_NAME,
    gguf_rope: RopeLayout::Interleaved,
    windows,
    tiny: |layers| ModelConfig { windows: vec![Some(24); layers], ..family::tiny(layers) },
    ..BASE
};

fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = window(config)?;
    Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![window; layers]))
}
