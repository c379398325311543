//! Gated residual streams (Qwen3.8): several streams without norms between sublayers. Each sublayer
//! reads the mean of all streams through gates of its own, and its output is added to each stream
//! times a strength.

use serde::Serialize;

use crate::layers::tensor::{TensorKind, TensorSpec};

/// How a sublayer, or the output head, reads and changes gated streams.
///
/// With `n`, the RMSNorm of each of the C streams times weights, the input is the mean over streams
/// of `sigmoid(up silu(down n / C)) * n`, and stream `i` gains `2 sigmoid((inject n / C)_i)` times
/// the output.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GatedStreamsSpec {
    /// Start of the canonical names of its tensors.
    pub name: &'static str,
    /// The streams.
    pub streams: GatedStreamsConfig,
    /// Epsilon of the norm.
    pub eps: f32,
    /// Whether the streams are read only, as the output head does.
    pub reads_only: bool,
}

impl GatedStreamsSpec {
    /// The norm, the two products of the gates, and the product of the strengths.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let GatedStreamsConfig { streams, rank } = self.streams;
        let (all, name) = (streams * hidden, self.name);
        let product = |part: &str, outputs, inputs| {
            TensorKind::HyperConnection.linear(&format!("{name}_{part}"), outputs, inputs)
        };
        let mut tensors = vec![TensorKind::Norm.tensor(format!("{name}_norm.weight"), &[all])];
        tensors.extend(product("down", rank, all));
        tensors.extend(product("up", all, rank));
        if !self.reads_only {
            tensors.extend(product("inject", streams, all));
        }
        tensors
    }
}

/// Sizes of gated residual streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatedStreamsConfig {
    /// Residual streams.
    pub streams: usize,
    /// Values between the two products of the gates.
    pub rank: usize,
}
