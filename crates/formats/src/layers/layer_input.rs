//! Per-layer embeddings (Gemma 3n and 4): each layer has an input of its own for each token.

use serde::Serialize;

use crate::layers::mlp::Activation;
use crate::layers::tensor::{TensorKind, TensorSpec};

/// A projection of the layer's input, which is gated by the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerInputSpec {
    /// Values of the input.
    pub width: usize,
    /// The first of them among those of all layers, of which there are `all`.
    pub first: usize,
    /// Values of the inputs of all layers.
    pub all: usize,
    /// How the gate is applied.
    pub activation: Activation,
}

impl LayerInputSpec {
    /// The tensors of the operation, whose residual stream has `hidden` values.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        let kind = TensorKind::Dense;
        let gate = kind.linear("inp_gate", self.width, hidden);
        [gate, kind.linear("proj", hidden, self.width)].concat()
    }
}
