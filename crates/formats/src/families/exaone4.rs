//! EXAONE 4: norms of what sublayers give, and of heads; windows on most layers, the others without
//! rotary embedding.

use super::prelude::*;

pub(super) static EXAONE4: Family = Family {
    name: "exaone4",
    hf: HfRules { class: "Exaone4ForCausalLM", declared: &[], windows, more: hf_more, ..BASE.hf },
    gguf: GgufRules { name: "exaone4", window_period: None, more: gguf_more, ..BASE.gguf },
    names: NameTable { layer: &[NORMS_AFTER, ATTENTION, QK_NORMS, MLP], ..DENSE },
    layer: |model, at| {
        let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
        Layer::of([
            Sublayer::normed_after(attention, model.rms("post_attention_norm")),
            Sublayer::normed_after(model.mlp(at), model.rms("post_ffw_norm")),
        ])
    },
    tiny,
    ..BASE
};

/// Windows by kind of layer, or on all layers but each of a period's last and the last of all.
pub(super) fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = window(config)?;
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let period = period(config)?;
    let slides = |layer: usize| period.is_some_and(|period| !(layer + 1).is_multiple_of(period));
    let all = (0..layers).map(|layer| window.filter(|_| slides(layer) && layer + 1 < layers));
    Ok(all.collect())
}

fn window(config: Object) -> Result<Option<usize>> {
    config.nullable("sliding_window", MAX_TOKENS, Some(4096))
}

pub(super) fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    set(model, window(config)?.is_some());
    Ok(())
}

pub(super) fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    let window = gguf_windows(keys, model)?;
    set(model, window.is_some());
    Ok(())
}

/// Sets windows by the period where files of llama.cpp do not list their layers; returns the
/// window.
pub(super) fn gguf_windows(keys: &GgufKeys, model: &mut Hyperparameters) -> Result<Option<usize>> {
    let window = keys.opt_count("attention.sliding_window", MAX_TOKENS)?;
    if keys.flags_of_layers("attention.sliding_window_pattern", model.layers)?.is_none() {
        let of_layer = |layer: usize| window.filter(|_| !(layer + 1).is_multiple_of(PERIOD));
        model.windows = (0..model.layers).map(of_layer).collect();
    }
    Ok(window)
}

/// Layers to one without a window in files of llama.cpp.
const PERIOD: usize = 4;

/// Layers to one without a window: a number, or letters for each kind, such as `LLLG`.
fn period(config: Object) -> Result<Option<usize>> {
    const KEY: &str = "sliding_window_pattern";
    match config.text(KEY) {
        Ok(Some(letters)) => Ok(Some(letters.len()).filter(|length| *length > 0)),
        Ok(None) => Ok(None),
        Err(_) => config.opt_positive(KEY, MAX_LAYERS),
    }
}

/// Sets what files do not say. Where layers `slide`, the others are not rotated.
fn set(model: &mut Hyperparameters, slide: bool) {
    model.unrotated = model.windows.iter().map(|window| slide && window.is_none()).collect();
}

/// A small configuration with a window on three layers of four.
pub(super) fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.windows = (0..layers).map(|layer| (layer % 4 < 3).then_some(24)).collect();
    config.rope.scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    };
    set(&mut config, true);
    config
}
