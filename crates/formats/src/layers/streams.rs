//! The residual stream of a layer, or several: hyper-connections (mHC; DeepSeek V4).

use serde::Serialize;

use crate::layers::gated_streams::GatedStreamsSpec;
use crate::layers::tensor::{TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names of the mixtures of a layer's two sublayers in Hugging Face checkpoints.
pub(crate) const MIXTURES: NamePairs = &[
    ("hc_attn_fn", "hc_attn_fn.weight"),
    ("hc_attn_base", "hc_attn_base.weight"),
    ("hc_attn_scale", "hc_attn_scale.weight"),
    ("hc_ffn_fn", "hc_ffn_fn.weight"),
    ("hc_ffn_base", "hc_ffn_base.weight"),
    ("hc_ffn_scale", "hc_ffn_scale.weight"),
];

/// What a sublayer reads, and how its output is added.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum StreamSpec {
    /// One stream, to which outputs are added times a factor.
    One {
        /// The factor.
        scale: f32,
    },
    /// Several streams, which a sublayer reads, writes and mixes with weights that follow from the
    /// streams.
    Several(MixtureSpec),
    /// Several streams, which a sublayer reads through gates and adds to.
    Gated(GatedStreamsSpec),
    /// Several streams, all of which an operation reads as they are, and adds to.
    All,
    /// One stream, to which outputs are added; what is read is the pair of an embedding and a state
    /// from which a head drafts a token.
    Pair,
}

/// How a sublayer, or the output head, mixes several streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MixtureSpec {
    /// Start of the canonical names of its tensors.
    pub name: &'static str,
    /// The streams.
    pub streams: HyperConfig,
    /// Where the weights come from, and what they are weights of.
    pub mixing: Mixing,
}

/// How streams are mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mixing {
    /// Streams are read, written and mixed with weights that follow from them.
    All,
    /// Streams are read and written with weights that follow from them, and are not mixed (Hy4).
    Apart,
    /// Streams are read with weights that follow from them, as the output head does.
    Reads,
    /// The mean of the streams is read.
    Mean,
}

impl MixtureSpec {
    /// Products of a row, of which factors are made.
    pub fn products(&self) -> usize {
        let streams = self.streams.streams;
        match self.mixing {
            Mixing::All => (2 + streams) * streams,
            Mixing::Apart => 2 * streams,
            Mixing::Reads | Mixing::Mean => streams,
        }
    }

    /// Products, biases and scales of the factors.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let count = self.products();
        let parts = match self.mixing {
            Mixing::All => 3,
            Mixing::Apart => 2,
            Mixing::Reads => 1,
            Mixing::Mean => return Vec::new(),
        };
        let part = |part: &str, shape: &[usize]| {
            TensorKind::HyperConnection.tensor(format!("{}_{part}.weight", self.name), shape)
        };
        let inputs = self.streams.streams * hidden;
        vec![part("fn", &[count, inputs]), part("base", &[count]), part("scale", &[parts])]
    }
}

/// Manifold-constrained hyper-connections (DeepSeek V4): several residual streams, which each
/// sublayer reads, writes and mixes with weights that follow from the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HyperConfig {
    /// Residual streams.
    pub streams: usize,
    /// Passes of the Sinkhorn iteration that makes the mixing matrix doubly stochastic; 0 where
    /// streams are not mixed.
    pub iterations: usize,
    /// Added to sums before they divide, and to weights.
    pub eps: f32,
    /// Factor of what is written, where streams are not mixed.
    pub magnitude: Option<f32>,
}
