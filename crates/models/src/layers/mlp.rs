//! The gated MLP: `down(silu(gate(x)) * up(x))` (Shazeer, 2020).

use super::{Linear, Pass};
use crate::Error;
use crate::loader::Loader;
use backend::{Backend, Buffer};

/// Workspace shared by the MLPs of all layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MlpBuffers {
    gate: Buffer,
    up: Buffer,
}

impl MlpBuffers {
    pub fn new(backend: &mut dyn Backend, rows: usize, intermediate: usize) -> Result<Self, Error> {
        let mut buffer = || backend.buffer(rows, intermediate);
        Ok(Self { gate: buffer()?, up: buffer()? })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl GatedMlp {
    /// Loads `{prefix}.ffn_gate`, `ffn_up` and `ffn_down`.
    pub fn load(
        loader: &mut Loader<'_>,
        prefix: &str,
        hidden: usize,
        intermediate: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            gate: loader.linear(&format!("{prefix}.ffn_gate"), intermediate, hidden)?,
            up: loader.linear(&format!("{prefix}.ffn_up"), intermediate, hidden)?,
            down: loader.linear(&format!("{prefix}.ffn_down"), hidden, intermediate)?,
        })
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(&self, pass: &mut Pass<'_>, x: Buffer, out: Buffer, work: &MlpBuffers) {
        let rows = pass.rows();
        Linear::forward_each(pass, x, [(&self.gate, work.gate), (&self.up, work.up)], rows);
        pass.backend.silu_mul(work.gate, work.up, rows);
        self.down.forward(pass, work.gate, out, rows);
    }
}
