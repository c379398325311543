//! Norms of the residual stream: RMSNorm (Zhang and Sennrich, 2019), LayerNorm (Ba et al., 2016).

use serde::Serialize;

use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names in Hugging Face checkpoints of most families: one norm before each sublayer.
pub(crate) const NORMS: NamePairs = &[
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
];

/// Norms around both sublayers (Gemma).
pub(crate) const NORMS_AROUND: NamePairs = &[
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
];

/// Biases of norms.
pub(crate) const NORM_BIASES: NamePairs = &[
    ("input_layernorm.bias", "attn_norm.bias"),
    ("post_attention_layernorm.bias", "ffn_norm.bias"),
];

/// Norms of the outputs of sublayers (OLMo 2).
pub(crate) const NORMS_AFTER: NamePairs = &[
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
];

/// A norm of rows as wide as the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NormSpec {
    /// Canonical name of its tensors, without a suffix.
    pub name: &'static str,
    /// What is computed.
    pub kind: NormKind,
    /// Added to the mean square.
    pub eps: f32,
}

/// What a norm computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NormKind {
    /// Values divided by the root of their mean square, times weights.
    Rms,
    /// The same without weights.
    Bare,
    /// The same of values without their mean, and a bias is added where the checkpoint has it.
    Layer(Presence),
}

impl NormSpec {
    /// The weights, and the bias of a LayerNorm, of `width` values.
    pub fn tensors(&self, width: usize) -> Vec<TensorSpec> {
        let part =
            |suffix: &str| TensorKind::Norm.tensor(format!("{}.{suffix}", self.name), &[width]);
        let bias = match self.kind {
            NormKind::Rms | NormKind::Bare => None,
            NormKind::Layer(presence) => Some(part("bias").that_is(presence)),
        };
        let weight = (self.kind != NormKind::Bare).then(|| part("weight"));
        weight.into_iter().chain(bias).collect()
    }
}
