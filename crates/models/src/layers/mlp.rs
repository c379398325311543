//! The gated MLP: `down(gate(x) applied to up(x))` (Shazeer, 2020).

use super::{ForwardPass, Linear};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::{Slice, part};
use backend::{Backend, Buffer, Gate};
use dist::Split;
use formats::config::Activation;

/// Inner values that stay together where there are enough for all ranks: what kernels multiply.
const UNIT: usize = 32;

/// Workspace shared by the MLPs of all layers, as wide as the widest.
#[derive(Clone, Debug)]
pub(crate) struct MlpBuffers(Vec<(usize, [Buffer; 2])>);

impl MlpBuffers {
    /// Room for MLPs of these widths.
    pub fn new(backend: &mut dyn Backend, rows: usize, widths: &[usize]) -> Result<Self, Error> {
        let mut buffers = Vec::new();
        for &width in widths {
            if width > 0 && buffers.iter().all(|(other, _)| *other != width) {
                buffers.push((width, [backend.buffer(rows, width)?, backend.buffer(rows, width)?]));
            }
        }
        Ok(Self(buffers))
    }

    fn of(&self, width: usize) -> [Buffer; 2] {
        let found = self.0.iter().find(|(other, _)| *other == width);
        found.expect("room for MLPs of this width").1
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    kind: Gate,
    /// Inner values that this rank has.
    width: usize,
}

impl GatedMlp {
    /// Loads `ffn_gate`, `ffn_up` and `ffn_down` of a layer, with `suffix` behind each: of the inner
    /// values, of which there are `width`, those of this rank.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        suffix: &str,
        width: usize,
    ) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let name = |part: &str| format!("blk.{layer}.ffn_{part}{suffix}");
        // Columns can be parted between quant blocks only.
        let down =
            loader.checkpoint.require(&format!("{}.weight", name("down")), &[hidden, width])?;
        let block = loader.block_len(down);
        let what = format!("inner values of {}", down.source_name);
        let units = [UNIT.next_multiple_of(block), block];
        let inner = part(loader.slice, (width, &what), &units)?;
        let outputs = || Slice::Outputs(inner.clone());
        Ok(Self {
            gate: loader.linear(&name("gate"), width, hidden, outputs())?,
            up: loader.linear(&name("up"), width, hidden, outputs())?,
            down: loader.linear(&name("down"), hidden, width, Slice::Inputs(inner.clone()))?,
            kind: gate_kind(loader.checkpoint.config().activation),
            width: inner.len(),
        })
    }

    /// Inner values that this rank has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// What each rank has of the outputs.
    pub fn split(&self) -> Split {
        self.down.split()
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer, work: &MlpBuffers) {
        let rows = pass.rows();
        let [gate, up] = work.of(self.width);
        Linear::forward_each(pass, x, [(&self.gate, gate), (&self.up, up)], rows);
        pass.backend.apply_gate(self.kind, gate, up, rows);
        self.down.forward(pass, gate, out, rows);
    }
}

/// How a configuration wants gates applied.
pub(super) fn gate_kind(activation: Activation) -> Gate {
    match activation {
        Activation::Silu => Gate::Silu,
        Activation::ClampedSwiglu { alpha, limit } => Gate::Clamped { alpha, limit },
    }
}
