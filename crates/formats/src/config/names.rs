//! Names outside of operations that several families share. An operation's own are in its file of
//! `layers`.

use crate::layers::{ATTENTION, MLP, NORMS, QK_NORMS};
use crate::names::{NamePairs, NameTable};

/// The names of Hugging Face's Llama, which other dense families share. Biases and head norms exist
/// in some families only.
pub(crate) const DENSE: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, ATTENTION, QK_NORMS, MLP],
    ignored: &["rotary_emb.inv_freq"],
    others: &[],
    wrapped: &[],
    modalities: &[],
};

pub(crate) const LAYER_PREFIX: &str = "model.layers.";

pub(crate) const GLOBALS: NamePairs = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Prefixes of language models in checkpoints of several modalities.
pub(crate) const WRAPPED: NamePairs = &[
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// Prefixes of what Mistral's and others' checkpoints have for images.
pub(crate) const MISTRAL_VISION: &[&str] = &[
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
];

/// Prefixes of what such checkpoints have for images and video.
pub(crate) const VISUAL: &[&str] = &["model.visual.", "visual."];
