//! Mistral: Llama with a sliding window on all layers, or on none.

use super::llama::GGUF_NAME;
use super::prelude::*;

pub(super) static MISTRAL: Family = Family {
    name: "mistral",
    hf: HfRules {
        class: "MistralForCausalLM",
        wrapper: WRAPPER,
        declared: &[],
        windows,
        ..BASE.hf
    },
    gguf: GgufRules { name: GGUF_NAME, rope: RopeLayout::Interleaved, ..BASE.gguf },
    names: NAMES,
    tiny: |layers| Hyperparameters { windows: vec![Some(24); layers], ..family::tiny(layers) },
    ..BASE
};

/// The class of checkpoints that hold images too.
pub(super) const WRAPPER: &str = "Mistral3ForConditionalGeneration";

/// Names in checkpoints that may hold images too.
pub(super) const NAMES: NameTable =
    NameTable { wrapped: WRAPPED, modalities: MISTRAL_VISION, ..DENSE };

fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = window(config)?;
    Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![window; layers]))
}
