//! Qwen2 (biases on Q, K and V) and Qwen3 (norms on the heads of Q and K).

use super::RopeLayout;
use super::family::{Family, Windows, windows_by_type};
use super::hf::{MAX_LAYERS, window};
use crate::error::Result;
use crate::json::Object;
use crate::names::DENSE;

/// First layer with a window where config.json does not say, as in the reference library.
const DEFAULT_FIRST_WINDOW_LAYER: usize = 28;

pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    hf_class: "Qwen2ForCausalLM",
    gguf_name: Some("qwen2"),
    gguf_rope: RopeLayout::Halves,
    head_dim: None,
    biases: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    names: &DENSE,
    windows,
};

pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    hf_class: "Qwen3ForCausalLM",
    gguf_name: Some("qwen3"),
    gguf_rope: RopeLayout::Halves,
    head_dim: Some(128),
    biases: &[],
    names: &DENSE,
    windows,
};

/// `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on.
fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = match config.flag("use_sliding_window")? {
        Some(true) => window(config)?,
        _ => None,
    };
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let first = config.count("max_window_layers", MAX_LAYERS)?;
    let first = first.unwrap_or(DEFAULT_FIRST_WINDOW_LAYER);
    Ok((0..layers).map(|layer| window.filter(|_| layer >= first)).collect())
}
