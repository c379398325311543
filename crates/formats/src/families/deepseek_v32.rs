//! DeepSeek V3.2: V3 with an index that chooses the positions to attend to.

use super::deepseek_v3::{self, NEXTN_LAYERS, V3_BASE};
use super::prelude::*;

pub(super) static DEEPSEEK_V32: Family = Family {
    name: "deepseek_v32",
    hf: HfRules {
        class: "DeepseekV32ForCausalLM",
        defaults: || family::with(deepseek_v3::defaults(), index::defaults(64)),
        more: |config, model| index::read(config, RopeLayout::Halves, model),
        ..INDEXED.hf
    },
    gguf: GgufRules {
        name: "deepseek32",
        is: |_, _| Ok(true),
        more: |keys, file, model| gguf::index::read(keys, file, RopeLayout::Halves, model),
        ..INDEXED.gguf
    },
    mtp: Some(INDEXED_LAYERS),
    ..INDEXED
};

/// Layers of multi-token prediction after the last one, which have experts and an index of their
/// own.
pub(super) const INDEXED_LAYERS: MtpRules = MtpRules { last: with_index, ..NEXTN_LAYERS };

/// Gives a layer experts, where the model has any, and an index of its own.
fn with_index(model: &mut Hyperparameters, at: usize) {
    deepseek_v3::with_experts(model, at);
    if let Some(index) = &mut model.index {
        index.layers[at] = true;
    }
}

/// What families with an index have in common.
pub(super) const INDEXED: Family = Family {
    names: NameTable {
        layer: &[
            NORMS,
            LATENT_ATTENTION,
            INDEX,
            MLP,
            ROUTER,
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
        ],
        ..DENSE
    },
    hf: HfRules {
        to_json: |config| {
            let mut json = experts::grouped_json(config);
            extend(&mut json, index::to_json(config));
            json
        },
        ..V3_BASE.hf
    },
    tiny: |layers| tiny(layers, RopeLayout::Halves),
    ..V3_BASE
};

/// A small configuration whose index chooses fewer positions than tests have.
pub(super) fn tiny(layers: usize, layout: RopeLayout) -> Hyperparameters {
    let index = IndexConfig {
        heads: 3,
        dim: 14,
        top: 9,
        layout,
        layers: vec![true; layers],
        ..IndexConfig::default()
    };
    Hyperparameters { index: Some(index), ..(V3_BASE.tiny)(layers) }
}
