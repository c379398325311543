//! ERNIE 4.5: Llama with pairs of neighbours rotated.

use super::prelude::*;

pub(super) static ERNIE4_5: Family = Family {
    name: "ernie4_5",
    hf: HfRules { class: "Ernie4_5ForCausalLM", ..ERNIE4_5_BASE.hf },
    gguf: GgufRules { name: "ernie4_5", ..ERNIE4_5_BASE.gguf },
    ..ERNIE4_5_BASE
};

/// What the families have in common.
pub(super) const ERNIE4_5_BASE: Family = Family {
    hf: HfRules {
        rope: RopeLayout::Interleaved,
        defaults: || json!({"rope_theta": 500_000.0}),
        declared: &[("use_bias", false, &[])],
        ..BASE.hf
    },
    gguf: GgufRules { rope: RopeLayout::Interleaved, ..BASE.gguf },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.rope.layout = RopeLayout::Interleaved;
        Hyperparameters { tied_embeddings: true, ..config }
    },
    ..BASE
};
