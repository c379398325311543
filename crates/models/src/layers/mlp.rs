//! The gated MLP: `down(gate(x) applied to up(x))` (Shazeer, 2020), or without a gate
//! `down(activation(up(x)))`.

use super::linear::Linear;
use super::operation::Operation;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Slice, part};
use backend::{Buffer, Gate, MapOp};
use dist::Split;
use formats::layers::Activation;
use formats::layers::MlpSpec;

/// Preferred unit in which inner values are divided among ranks: a block of the kernels.
const UNIT: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedMlp {
    /// `None` where an activation of the inner values takes its place.
    gate: Option<Linear>,
    up: Linear,
    pub down: Linear,
    kind: Gate,
    /// Workspace of gate and up: `[rows, inner values of this rank]` each.
    work: [Buffer; 2],
}

impl GatedMlp {
    /// Loads `ffn_gate` where there is a gate, `ffn_up` and `ffn_down`, with `suffix` after each
    /// name: this rank's part of the inner values.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the inner values cannot be divided among the
    /// ranks, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, suffix: &str, spec: &MlpSpec) -> Result<Self, Error> {
        let name = |part: &str| format!("ffn_{part}{suffix}");
        // Columns can be divided between quant blocks only.
        let down = loader.require(&format!("{}.weight", name("down")))?;
        let block = loader.block_len(down);
        let what = format!("inner values of {}", down.source_name);
        let units = [UNIT.next_multiple_of(block), block];
        let inner = part(loader.slice, (spec.width, &what), &units)?;
        let outputs = || Slice::Outputs(inner.clone());
        Ok(Self {
            gate: match spec.gated {
                true => Some(Linear::load(loader, &name("gate"), outputs())?),
                false => None,
            },
            up: Linear::load(loader, &name("up"), outputs())?,
            down: Linear::load(loader, &name("down"), Slice::Inputs(inner.clone()))?,
            kind: limited(spec.activation, spec.limit),
            work: [
                loader.shared("gate", inner.len())?,
                loader.shared("up", if spec.gated { inner.len() } else { 1 })?,
            ],
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn compute(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let ([gate, up], rows) = (self.work, pass.rows());
        match &self.gate {
            Some(linear) => {
                Linear::forward_each(pass, x, [(linear, gate), (&self.up, up)], rows);
                pass.backend.map(MapOp::Gate(self.kind, up), gate, rows);
            }
            None => {
                self.up.forward(pass, x, gate, rows);
                pass.backend.map(MapOp::Activate(self.kind), gate, rows);
            }
        }
        self.down.forward(pass, gate, out, rows);
    }
}

impl Operation for GatedMlp {
    fn name(&self) -> &'static str {
        "MLP"
    }

    fn split(&self) -> Split {
        self.down.split
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        self.compute(pass, x, out);
        Ok(())
    }
}

/// The gate for an activation, with a bound of its inputs where there is one.
pub(super) fn limited(activation: Activation, limit: Option<f32>) -> Gate {
    match (limit, activation) {
        (None, _) => gate_kind(activation),
        (Some(limit), Activation::SiluBeforeLimit) => Gate::SiluThenClamped { limit },
        (Some(limit), _) => Gate::SiluClamped { limit },
    }
}

/// The gate of the backend for an activation.
pub(super) fn gate_kind(activation: Activation) -> Gate {
    match activation {
        Activation::Silu | Activation::SiluBeforeLimit => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
        Activation::ReluSquared => Gate::ReluSquared,
        Activation::Gelu => Gate::Gelu,
        Activation::ClampedSwiglu { alpha, limit } => Gate::Clamped { alpha, limit },
    }
}
