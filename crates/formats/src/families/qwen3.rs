//! Qwen3: Qwen2 without biases, with norms on the heads of queries and keys.

use super::prelude::*;
use super::qwen2;

pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    hf: HfRules {
        class: "Qwen3ForCausalLM",
        defaults: || json!({"head_dim": 128}),
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        windows: qwen2::windows,
        ..BASE.hf
    },
    gguf: GgufRules { name: "qwen3", ..BASE.gguf },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(
                model.rms("attn_norm"),
                model.grouped(at).with_head_norms(HeadNormSpec::EACH),
            ),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    tiny: |layers| Hyperparameters { tied_embeddings: true, ..family::tiny(layers) },
    ..BASE
};
