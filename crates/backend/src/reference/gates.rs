//! Gates, as they are defined.

use crate::handles::Gate;

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// `1 - erf(x)`, as a sum over its density.
fn erfc(x: f32) -> f32 {
    const STEPS: i32 = 4000;
    let (x, factor) = (f64::from(x), 2.0 / std::f64::consts::PI.sqrt());
    let width = x / f64::from(STEPS);
    let middle = |step: i32| (f64::from(step) + 0.5) * width;
    let area: f64 = (0..STEPS).map(|step| width * (-middle(step).powi(2)).exp()).sum();
    (1.0 - factor * area) as f32
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
        Gate::SiluThenClamped { limit } => {
            (gate * sigmoid(gate)).min(limit) * up.clamp(-limit, limit)
        }
        Gate::Sigmoid => sigmoid(gate) * up,
        Gate::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh()) * up
        }
        Gate::Product => gate * up,
        Gate::ReluSquared => gate.max(0.0).powi(2) * up,
        Gate::Gelu => gate * (0.5 * erfc(-gate / 2f32.sqrt())) * up,
    }
}
