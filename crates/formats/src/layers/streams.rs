//! The residual stream of a layer, or several: hyper-connections (mHC; DeepSeek V4).

use serde::Serialize;

use crate::layers::tensor::{TensorKind, TensorSpec};

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
}

/// How a sublayer, or the output head, mixes several streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MixtureSpec {
    /// Start of the canonical names of its tensors.
    pub name: &'static str,
    /// The streams.
    pub streams: HyperConfig,
    /// Whether the streams are read only, as the output head does.
    pub reads_only: bool,
}

impl MixtureSpec {
    /// Factors of a row.
    pub fn factors(&self) -> usize {
        let streams = self.streams.streams;
        if self.reads_only { streams } else { (2 + streams) * streams }
    }

    /// Products, biases and scales of the factors.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let (count, parts) = (self.factors(), if self.reads_only { 1 } else { 3 });
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
    /// Passes of the Sinkhorn iteration that makes the mixing matrix doubly stochastic.
    pub iterations: usize,
    /// Added to sums before they divide, and to weights.
    pub eps: f32,
}
