//! The gated MLP: `down(gate(x) applied to up(x))` (Shazeer, 2020), or without a gate
//! `down(activation(up(x)))`.

use super::{ForwardPass, Linear};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Slice, part};
use backend::{Buffer, Gate};
use formats::config::Activation;

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
    /// Loads `ffn_gate`, `ffn_up` and `ffn_down` of a layer, with `suffix` after each name: this
    /// rank's part of the `width` inner values, gated as `kind` says.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        suffix: &str,
        (width, kind): (usize, Gate),
    ) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{suffix}");
        // Columns can be divided between quant blocks only.
        let down =
            loader.checkpoint.require(&format!("{}.weight", name("down")), &[hidden, width])?;
        let block = loader.block_len(down);
        let what = format!("inner values of {}", down.source_name);
        let units = [UNIT.next_multiple_of(block), block];
        let inner = part(loader.slice, (width, &what), &units)?;
        let is_plain = loader.checkpoint.config().plain_mlp;
        let outputs = || Slice::Outputs(inner.clone());
        Ok(Self {
            gate: match is_plain {
                true => None,
                false => Some(Linear::load(loader, &name("gate"), width, hidden, outputs())?),
            },
            up: Linear::load(loader, &name("up"), width, hidden, outputs())?,
            down: Linear::load(loader, &name("down"), hidden, width, Slice::Inputs(inner.clone()))?,
            kind,
            work: [
                loader.shared("gate", inner.len())?,
                loader.shared("up", if is_plain { 1 } else { inner.len() })?,
            ],
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        let ([gate, up], rows) = (self.work, pass.rows());
        match &self.gate {
            Some(linear) => {
                Linear::forward_each(pass, x, [(linear, gate), (&self.up, up)], rows);
                pass.backend.apply_gate(self.kind, gate, up, rows);
            }
            None => {
                self.up.forward(pass, x, gate, rows);
                pass.backend.activate(self.kind, gate, rows);
            }
        }
        self.down.forward(pass, gate, out, rows);
    }
}

/// The gate of the backend for an activation.
pub(super) fn gate_kind(activation: Activation) -> Gate {
    match activation {
        Activation::Silu => Gate::Silu,
        Activation::GeluTanh => Gate::GeluTanh,
        Activation::ReluSquared => Gate::ReluSquared,
        Activation::Gelu => Gate::Gelu,
        Activation::ClampedSwiglu { alpha, limit } => Gate::Clamped { alpha, limit },
    }
}
