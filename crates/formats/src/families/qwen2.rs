//! Qwen2: Llama with biases on queries, keys and values.

use super::prelude::*;

/// First layer with a window where config.json does not say, as in the reference library.
const DEFAULT_FIRST_WINDOW_LAYER: usize = 28;

pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    hf: HfRules { class: "Qwen2ForCausalLM", declared: &[], windows, ..BASE.hf },
    gguf: GgufRules { name: "qwen2", ..BASE.gguf },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at).with_biases(Biases::Inputs)),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    ..BASE
};

/// `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on.
pub(super) fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = used_window(config)?;
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let first = window_layers(config)?;
    Ok((0..layers).map(|layer| window.filter(|_| layer >= first)).collect())
}

/// `sliding_window`, which counts only with `use_sliding_window`.
pub(super) fn used_window(config: Object) -> Result<Option<usize>> {
    match config.flag("use_sliding_window")? {
        Some(true) => window(config),
        _ => Ok(None),
    }
}

/// `max_window_layers`: where windows begin in these families, and end in others.
pub(super) fn window_layers(config: Object) -> Result<usize> {
    let found = config.count("max_window_layers", MAX_LAYERS)?;
    Ok(found.unwrap_or(DEFAULT_FIRST_WINDOW_LAYER))
}
