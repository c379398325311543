//! The MLP of a layer (Shazeer, 2020).

use serde::Serialize;

use crate::layers::factors::Factors;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names in Hugging Face checkpoints of most families.
pub(crate) const MLP: NamePairs = &[
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.gate_proj.bias", "ffn_gate.bias"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.up_proj.bias", "ffn_up.bias"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("mlp.down_proj.bias", "ffn_down.bias"),
];

/// `down(gate(x) applied to up(x))`, or without a gate `down(activation(up(x)))`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MlpSpec {
    /// Inner values.
    pub width: usize,
    /// How gates are applied.
    pub activation: Activation,
    /// Bound of the inner values: of the gate from above, and of the other half from both sides.
    pub limit: Option<f32>,
    /// Whether there is a gate.
    pub gated: bool,
    /// Whether projections have biases in every checkpoint.
    pub biased: bool,
    /// Factors of the outputs of projections.
    pub factors: Factors,
}

impl MlpSpec {
    /// The tensors of the MLP of a layer.
    pub fn tensors(&self, hidden: usize) -> Vec<TensorSpec> {
        self.named(TensorKind::Dense, "", hidden)
    }

    /// The tensors of a kind, with `suffix` after the names of projections.
    pub(super) fn named(&self, kind: TensorKind, suffix: &str, hidden: usize) -> Vec<TensorSpec> {
        let bias = if self.biased { Presence::Required } else { Presence::Optional };
        let parts = [("gate", [self.width, hidden]), ("up", [self.width, hidden])];
        let parts = parts.into_iter().chain([("down", [hidden, self.width])]);
        let parts = parts.skip(usize::from(!self.gated));
        let linear = |(part, shape)| kind.biased(&format!("ffn_{part}{suffix}"), shape, bias);
        parts.flat_map(linear).collect()
    }
}

/// How the gate of an MLP is applied to its other half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Activation {
    /// `silu(gate) * up`.
    Silu,
    /// The same, where a bound is that of `silu(gate)` rather than of `gate` (Step 3.5).
    SiluBeforeLimit,
    /// `gelu(gate) * up`, with the approximation by a hyperbolic tangent.
    GeluTanh,
    /// `max(gate, 0)^2 * up`.
    ReluSquared,
    /// `gelu(gate) * up`.
    Gelu,
    /// gpt-oss: `gate * sigmoid(alpha * gate) * (up + 1)`, `gate` at most `limit` and `up` within
    /// `-limit..=limit`.
    ClampedSwiglu {
        /// Slope of the sigmoid.
        alpha: f32,
        /// Bound on the values.
        limit: f32,
    },
}
