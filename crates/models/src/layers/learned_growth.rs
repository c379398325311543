//! Growth of queries with the logarithm of their positions, by learned numbers of each head.

use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, HeadColumns, MapOp, Rope, Vector};
use formats::layers::Growth;
use std::ops::Range;

/// Two equal values, as rotations, which compute functions of positions, are of pairs.
const PAIR: usize = 2;

/// `q = q * (slope * ln(1 + position) + base)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LearnedGrowth {
    /// Ones: `[rows, 2]`.
    ones: Buffer,
    /// `1 + ln(1 + position)`: `[rows, 2]`.
    logarithms: Buffer,
    /// What makes the second of the first.
    rope: Rope,
    /// Slopes of the heads, then their bases less their slopes.
    lines: Vector,
}

impl LearnedGrowth {
    /// Loads `name.weight`, the slopes, and `name.bias`, the bases, of the heads `own`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, name: &str, own: Range<usize>) -> Result<Self, Error> {
        let part = |suffix: &str| -> Result<Vec<f32>, Error> {
            Ok(loader.require(&format!("{name}.{suffix}"))?.to_f32()?[own.clone()].to_vec())
        };
        let (mut lines, bases) = (part("weight")?, part("bias")?);
        let bases: Vec<_> = bases.iter().zip(&lines).map(|(base, slope)| base - slope).collect();
        lines.extend(bases);
        Ok(Self {
            ones: loader.filled("ones", &[1.0; PAIR])?,
            logarithms: loader.shared("logarithms", PAIR)?,
            rope: loader.growth(PAIR, Growth { beta: 1.0, every: 1, offset: 0 })?,
            lines: loader.backend.vector(lines),
        })
    }

    /// Multiplies the queries, `[rows, heads * dim]`.
    pub fn apply(&self, pass: &mut ForwardPass<'_>, queries: Buffer) {
        let rows = pass.rows();
        let all = |buffer| HeadColumns { buffer, first: 0, stride: PAIR };
        pass.backend.copy_heads(all(self.ones), PAIR, all(self.logarithms), rows);
        pass.backend.rotate(all(self.logarithms), self.rope, rows);
        pass.backend.map(MapOp::ScaleByLines(self.logarithms, self.lines), queries, rows);
    }
}
