//! Gates, as they are defined.

use crate::Gate;

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// What the gate of an MLP makes of two values.
pub(super) fn gated(kind: Gate, gate: f32, up: f32) -> f32 {
    match kind {
        Gate::Silu => gate * sigmoid(gate) * up,
        Gate::Clamped { alpha, limit } => {
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(alpha * gate) * (up + 1.0)
        }
        Gate::SiluClamped { limit } => gated(Gate::Silu, gate.min(limit), up.clamp(-limit, limit)),
        Gate::Sigmoid => sigmoid(gate) * up,
        Gate::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Gate::Product => gate * up,
        Gate::ReluSquared => gate.max(0.0).powi(2) * up,
    }
}
