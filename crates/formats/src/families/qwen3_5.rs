//! Qwen3.5 and later: Qwen3-Next without experts, and with projections apart.

use super::prelude::*;
use super::qwen3_next::{self, QWEN_DELTA, tiny};

pub(super) static QWEN3_5: Family = Family {
    name: "qwen3_5",
    hf: HfRules {
        class: "Qwen3_5ForCausalLM",
        wrapper: "Qwen3_5ForConditionalGeneration",
        types: &[TEXT],
        defaults: || family::with(qwen3_next::defaults(), json!({"num_key_value_heads": 4})),
        to_json: |config| {
            let mut json = delta::to_json(config);
            extend(&mut json, json!({"model_type": TEXT}));
            json
        },
        ..QWEN_DELTA.hf
    },
    gguf: GgufRules { name: "qwen35", sections: true, ..QWEN_DELTA.gguf },
    names: NameTable { layer: &[NORMS, ATTENTION, QK_NORMS, DELTA, MLP], ..QWEN_WRAPPED },
    delta: Some(APART),
    tiny: |layers| Hyperparameters { tied_embeddings: true, ..tiny(layers) },
    mtp: Some(qwen3_next::ATTENTION_LAYERS),
    ..QWEN_DELTA
};

const TEXT: &str = "qwen3_5_text";

pub(super) const APART: DeltaFiles =
    DeltaFiles { fused: false, gguf_tiled: true, gguf_unsigned: false };

/// Names in checkpoints that may hold other modalities too.
pub(super) const QWEN_WRAPPED: NameTable =
    NameTable { wrapped: WRAPPED, modalities: VISUAL, ..DENSE };
