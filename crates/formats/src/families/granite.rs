//! Granite: Llama with factors of embeddings, scores, what sublayers add, and logits.

use super::prelude::*;

pub(super) static GRANITE: Family = GRANITE_BASE;

/// The same for families that are similar.
pub(super) const GRANITE_BASE: Family = Family {
    name: "granite",
    hf: HfRules { class: "GraniteForCausalLM", defaults, ..BASE.hf },
    gguf: GgufRules { name: "granite", rope: RopeLayout::Interleaved, ..BASE.gguf },
    layer: |model, at| {
        let scale = model.residual_scale;
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at)).scaled(scale),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)).scaled(scale),
        ])
    },
    rows: FACTORS,
    tiny,
    ..BASE
};

pub(super) fn tiny(layers: usize) -> Hyperparameters {
    Hyperparameters {
        embedding_scale: 4.0,
        residual_scale: 0.25,
        attention_scale: 0.125,
        logit_scale: 0.5,
        ..family::tiny(layers)
    }
}

/// Factors of the model, in the order in which files have them.
pub(super) const FACTORS: &[FieldRow] = &[
    rows::ATTENTION_SCALE,
    rows::EMBEDDING_SCALE,
    rows::RESIDUAL_SCALE,
    rows::ATTENTION_MULTIPLIER,
    rows::LOGIT_DIVISOR,
];

/// Scores are not scaled by default.
pub(super) fn defaults() -> Json {
    json!({"attention_multiplier": 1.0})
}
