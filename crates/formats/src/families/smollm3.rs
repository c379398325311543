//! SmolLM3: Llama without rotary embedding in some layers.

use super::prelude::*;

pub(super) static SMOLLM3: Family = Family {
    name: "smollm3",
    hf: HfRules {
        class: "SmolLM3ForCausalLM",
        defaults: || json!({"num_key_value_heads": 4, "rope_theta": 2e6}),
        windows: super::qwen2::windows,
        more: |config, model| {
            model.unrotated = unrotated(config, model.layers)?;
            Ok(())
        },
        to_json: |config| {
            let rotated = |unrotated: &bool| u8::from(!unrotated);
            json!({"no_rope_layers": config.unrotated.iter().map(rotated).collect::<Vec<_>>()})
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "smollm3",
        rope: RopeLayout::Interleaved,
        more: |_, _, model| {
            model.unrotated = every(model.layers, PERIOD);
            Ok(())
        },
        ..BASE.gguf
    },
    tiny: |layers| Hyperparameters {
        unrotated: every(layers, PERIOD),
        tied_embeddings: true,
        ..family::tiny(layers)
    },
    ..BASE
};

/// Layers to one without rotary embedding, where files do not say.
const PERIOD: usize = 4;

/// The last layer of each period.
fn every(layers: usize, period: usize) -> Vec<bool> {
    (0..layers).map(|layer| (layer + 1).is_multiple_of(period)).collect()
}

/// `no_rope_layers` has 1 for layers with rotary embedding, in spite of its name.
pub(super) fn unrotated(config: Object, layers: usize) -> Result<Vec<bool>> {
    const KEY: &str = "no_rope_layers";
    let Some(list) = config.array(KEY)?.filter(|list| !list.is_empty()) else {
        let period = config.opt_positive("no_rope_layer_interval", MAX_LAYERS)?;
        return Ok(every(layers, period.unwrap_or(PERIOD)));
    };
    let flags: Option<Vec<bool>> = list
        .iter()
        .map(|flag| match flag.as_u64() {
            Some(rotated @ 0..=1) => Some(rotated == 0),
            _ => None,
        })
        .collect();
    flags
        .filter(|flags| flags.len() == layers)
        .ok_or_else(|| config.error(KEY, format!("expected 0 or 1 for each of {layers} layers")))
}
