//! EXAONE 4: norms of what sublayers give, and of heads; windows on most layers, the others without
//! rotary embedding.

use super::prelude::*;

pub(super) static EXAONE4: Family = Family {
    name: "exaone4",
    hf: HfRules {
        class: "Exaone4ForCausalLM",
        declared: &[],
        windows: |config, layers| {
            let window = config.nullable("sliding_window", MAX_TOKENS, Some(4096))?;
            if let Some(windows) = windows_by_type(config, layers, window)? {
                return Ok(windows);
            }
            let period = period(config)?;
            let slides =
                |layer: usize| period.is_some_and(|period| !(layer + 1).is_multiple_of(period));
            let all =
                (0..layers).map(|layer| window.filter(|_| slides(layer) && layer + 1 < layers));
            Ok(all.collect())
        },
        more: |config, model| {
            let window = config.nullable("sliding_window", MAX_TOKENS, Some(4096))?;
            set(model, window.is_some());
            Ok(())
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "exaone4",
        window_period: None,
        more: |keys, _, model| {
            let window = keys.opt_count("attention.sliding_window", MAX_TOKENS)?;
            if keys.flags("attention.sliding_window_pattern").is_none() {
                let of_layer =
                    |layer: usize| window.filter(|_| !(layer + 1).is_multiple_of(PERIOD));
                model.windows = (0..model.layers).map(of_layer).collect();
            }
            set(model, window.is_some());
            Ok(())
        },
        ..BASE.gguf
    },
    names: NameTable { layer: &[NORMS_AFTER, ATTENTION, QK_NORMS, MLP], ..DENSE },
    layer: |model, at| {
        let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
        Layer::of([
            Sublayer::normed_after(attention, model.rms("post_attention_norm")),
            Sublayer::normed_after(model.mlp(at), model.rms("post_ffw_norm")),
        ])
    },
    tiny: |layers| {
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
    },
    ..BASE
};

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
