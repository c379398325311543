//! The reference with what is loaded into it.

use super::cache::{CachedRows, ReferenceCache};
use super::gates::gated;
use super::rows::{Rows, add_scaled, dot};
use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{Buffer, ExpertsSpec, Magnitude, Matrix, MatrixSpec, Mode, Pairs};
use std::ops::Range;

/// A rotary embedding.
pub(super) struct Rotation {
    /// `[pairs]`, radians per position.
    pub(super) frequencies: Vec<f32>,
    pub(super) magnitude: Magnitude,
    pub(super) pairs: Pairs,
    /// Cosine and sine of each angle, `[rows, pairs]`.
    pub(super) angles: Vec<(f32, f32)>,
}

/// Executes the operations as they are defined, without regard to speed.
#[derive(Default)]
pub(crate) struct Reference {
    pub(super) buffers: Vec<Rows>,
    /// Matrices, `[outputs, inputs]`, and embedding tables, `[tokens, width]`.
    pub(super) matrices: Vec<Rows>,
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) experts: Vec<ExpertsSpec>,
    pub(super) ropes: Vec<Rotation>,
    pub(super) cache: ReferenceCache,
    /// Most rows of each choice, and the rows that each row of the batch chose.
    pub(super) selections: Vec<(usize, Vec<Vec<usize>>)>,
}

impl Reference {
    /// An empty backend.
    ///
    /// # Errors
    /// If `mode` is not exact.
    pub fn new(mode: Mode) -> Result<Self, Error> {
        match mode {
            Mode::Exact => Ok(Self::default()),
            Mode::Fast => {
                Err(Error::Device("the reference device has no mode but exact".to_owned()))
            }
        }
    }

    /// The values of a matrix, `[rows, cols]`, its columns in the order of the inputs.
    pub(super) fn dequantised(spec: &MatrixSpec) -> Result<Rows, Error> {
        let (row_bytes, cols) = (spec.row_bytes()?, spec.cols);
        let dequantize = spec.ty.dequantize.expect("`row_bytes` takes only such types");
        let (mut weights, mut stored) = (Rows::zeroed(spec.rows, cols), vec![0.0; cols]);
        for row in 0..spec.rows {
            dequantize(&spec.bytes.read(row * row_bytes..(row + 1) * row_bytes), &mut stored);
            for (col, value) in stored.iter().enumerate() {
                let input = spec.order.as_ref().map_or(col, |order| order[col] as usize);
                weights.row_mut(row)[input] = *value;
            }
        }
        Ok(weights)
    }

    /// Calls `f(self, row, values)` for each of the first `rows` rows of `out`.
    pub(super) fn each_row(
        &mut self,
        out: Buffer,
        rows: usize,
        mut f: impl FnMut(&Self, usize, &mut [f32]),
    ) {
        let width = self.buffers[out.0].width;
        let mut values = std::mem::take(&mut self.buffers[out.0].values);
        for (row, values) in values.chunks_exact_mut(width).take(rows).enumerate() {
            f(self, row, values);
        }
        self.buffers[out.0].values = values;
    }

    pub(super) fn row(&self, buffer: Buffer, row: usize) -> &[f32] {
        self.buffers[buffer.0].row(row)
    }

    /// `weights * x`: `[outputs]` of inputs `[inputs]`.
    pub(super) fn product(&self, matrix: Matrix, x: &[f32]) -> Vec<f32> {
        let weights = &self.matrices[matrix.0];
        weights.values.chunks_exact(weights.width).map(|weights| dot(weights, x)).collect()
    }

    /// The MLP of one expert, by its number among the experts held here: `[hidden]` of inputs
    /// `[hidden]`.
    pub(super) fn expert(&self, spec: &ExpertsSpec, expert: usize, x: &[f32]) -> Vec<f32> {
        let biased = |matrix: Matrix, which: usize, x: &[f32]| {
            let mut out = self.product(matrix, x);
            if let Some(biases) = spec.biases {
                let start = expert * out.len();
                add_scaled(&mut out, &self.vectors[biases[which].0][start..], 1.0);
            }
            out
        };
        let up = biased(spec.up[expert], 1, x);
        let inner: Vec<f32> = match spec.gate.get(expert) {
            Some(gate) => {
                let gate = biased(*gate, 0, x);
                gate.iter().zip(&up).map(|(g, u)| gated(spec.kind, *g, *u)).collect()
            }
            None => up.iter().map(|up| gated(spec.kind, *up, 1.0)).collect(),
        };
        biased(spec.down[expert], 2, &inner)
    }

    /// Adds to `out` what an expert gives, with the weight of its inputs or of its outputs.
    pub(super) fn add_expert(
        &self,
        out: &mut [f32],
        (spec, held): (&ExpertsSpec, usize),
        weight: f32,
        x: &[f32],
    ) {
        let (inner, outer) = if spec.weighs_inputs { (weight, 1.0) } else { (1.0, weight) };
        let x: Vec<f32> = x.iter().map(|x| x * inner).collect();
        add_scaled(out, &self.expert(spec, held, &x), outer);
    }

    /// Attention of one query head, `[dim]`, over the positions that it sees: `[value dim]`.
    pub(super) fn attend<'a>(&self, rows: &'a CachedRows, head: Head<'_>, out: &mut [f32]) {
        let dim = rows.spec.dim;
        let slots = head.seen.map(|position| rows.slot(position, head.blocks));
        let of_head = |rows: &'a Rows, slot: usize| &rows.row(slot)[head.kv_head * dim..][..dim];
        let scores: Vec<f32> = (slots.clone())
            .map(|slot| dot(head.q, of_head(&rows.keys, slot)) * head.scale)
            .collect();
        let most = scores.iter().copied().chain(head.sink).fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum = weights.iter().sum::<f32>() + head.sink.map_or(0.0, |sink| (sink - most).exp());
        let values = if rows.values.values.is_empty() { &rows.keys } else { &rows.values };
        out.fill(0.0);
        for (slot, weight) in slots.zip(weights) {
            add_scaled(out, of_head(values, slot), weight / sum);
        }
    }
}

impl Rotation {
    /// Cosine and sine of each angle at a position.
    pub(super) fn angles_at(&self, position: u32) -> Vec<(f32, f32)> {
        let magnitude = self.magnitude.at(position);
        let angle = |frequency: &f32| {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            (cos * magnitude, sin * magnitude)
        };
        self.frequencies.iter().map(angle).collect()
    }
}

/// A query vector and what it attends to.
pub(super) struct Head<'a> {
    /// `[dim]`.
    pub(super) q: &'a [f32],
    pub(super) kv_head: usize,
    pub(super) scale: f32,
    pub(super) sink: Option<f32>,
    /// Positions that the query sees.
    pub(super) seen: Range<usize>,
    /// Block table of its sequence.
    pub(super) blocks: &'a [u32],
}

/// The rows of a batch: row, position, block table of its sequence in a group.
pub(super) fn rows_of(batch: &Batch, group: usize) -> impl Iterator<Item = (usize, usize, &[u32])> {
    batch.sequences().iter().flat_map(move |sequence| {
        let positions = sequence.rows.clone().zip(sequence.position..);
        positions.map(move |(row, position)| (row, position, batch.block_table(sequence, group)))
    })
}
