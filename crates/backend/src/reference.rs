//! The specification of the device seam: every operation as plain loops over f32, for tests and
//! for `gannet verify --device reference`.
//!
//! Weights are dequantised when they are loaded, the KV cache holds f32 rows, and the calling
//! thread computes everything in ascending order. Instruction sets, memory policies and limits of
//! threads change nothing here.

mod adapters;
mod cache;
mod gates;
mod operations;
mod recurrent;
mod rotation;
mod sparse;
mod streams;

use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{
    Buffer, Experts, ExpertsSpec, Magnitude, Matrix, MatrixSpec, Mode, Pairs, Rope, Table, Vector,
};
use crate::memory::Memory;
use crate::seam::{Device, Held};
use crate::seam::{Executor, Weights};
use cache::{CachedRows, ReferenceCache};
use gates::gated;
use kernels::quant::QuantType;
use std::ops::Range;

/// The specification of the operations, on one thread.
pub static REFERENCE: Device = Device {
    name: "reference",
    is_gpu: false,
    list: Vec::new,
    open: |options| Ok(Box::new(Reference::new(options.mode)?)),
};

/// A row-major array of f32 values.
struct Rows {
    /// Values of a row.
    width: usize,
    /// `[rows, width]`.
    values: Vec<f32>,
}

/// A rotary embedding.
struct Rotation {
    /// `[pairs]`, radians per position.
    frequencies: Vec<f32>,
    magnitude: Magnitude,
    pairs: Pairs,
    /// Cosine and sine of each angle, `[rows, pairs]`.
    angles: Vec<(f32, f32)>,
}

/// Executes the operations as they are defined, without regard to speed.
#[derive(Default)]
pub(crate) struct Reference {
    buffers: Vec<Rows>,
    /// Matrices, `[outputs, inputs]`, and embedding tables, `[tokens, width]`.
    matrices: Vec<Rows>,
    vectors: Vec<Vec<f32>>,
    experts: Vec<ExpertsSpec>,
    ropes: Vec<Rotation>,
    cache: ReferenceCache,
    /// Most rows of each choice, and the rows that each row of the batch chose.
    selections: Vec<(usize, Vec<Vec<usize>>)>,
}

impl Rows {
    fn zeroed(rows: usize, width: usize) -> Self {
        Self { width, values: vec![0.0; rows * width] }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..][..self.width]
    }
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
    fn dequantised(spec: &MatrixSpec) -> Result<Rows, Error> {
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
    fn each_row(&mut self, out: Buffer, rows: usize, mut f: impl FnMut(&Self, usize, &mut [f32])) {
        let width = self.buffers[out.0].width;
        let mut values = std::mem::take(&mut self.buffers[out.0].values);
        for (row, values) in values.chunks_exact_mut(width).take(rows).enumerate() {
            f(self, row, values);
        }
        self.buffers[out.0].values = values;
    }

    fn row(&self, buffer: Buffer, row: usize) -> &[f32] {
        self.buffers[buffer.0].row(row)
    }

    /// `weights * x`: `[outputs]` of inputs `[inputs]`.
    fn product(&self, matrix: Matrix, x: &[f32]) -> Vec<f32> {
        let weights = &self.matrices[matrix.0];
        weights.values.chunks_exact(weights.width).map(|weights| dot(weights, x)).collect()
    }

    /// The MLP of one expert, by its number among the experts held here: `[hidden]` of inputs
    /// `[hidden]`.
    fn expert(&self, spec: &ExpertsSpec, expert: usize, x: &[f32]) -> Vec<f32> {
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
    fn add_expert(
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
    fn attend<'a>(&self, rows: &'a CachedRows, head: Head<'_>, out: &mut [f32]) {
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
    fn angles_at(&self, position: u32) -> Vec<(f32, f32)> {
        let magnitude = self.magnitude.at(position);
        let angle = |frequency: &f32| {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            (cos * magnitude, sin * magnitude)
        };
        self.frequencies.iter().map(angle).collect()
    }
}

/// A query vector and what it attends to.
struct Head<'a> {
    /// `[dim]`.
    q: &'a [f32],
    kv_head: usize,
    scale: f32,
    sink: Option<f32>,
    /// Positions that the query sees.
    seen: Range<usize>,
    /// Block table of its sequence.
    blocks: &'a [u32],
}

/// The rows of a batch: row, position, block table of its sequence in a group.
fn rows_of(batch: &Batch, group: usize) -> impl Iterator<Item = (usize, usize, &[u32])> {
    batch.sequences().iter().flat_map(move |sequence| {
        let positions = sequence.rows.clone().zip(sequence.position..);
        positions.map(move |(row, position)| (row, position, batch.block_table(sequence, group)))
    })
}

/// `x += factor * y`.
fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Executor for Reference {
    fn device(&self) -> &'static Device {
        &REFERENCE
    }

    fn identity(&self) -> String {
        "reference".to_owned()
    }

    fn threads(&self) -> usize {
        1
    }

    fn memory(&self) -> Memory {
        let bytes = |rows: &[Rows]| rows.iter().map(|rows| 4 * rows.values.len()).sum::<usize>();
        let vectors = self.vectors.iter().map(|vector| 4 * vector.len()).sum::<usize>();
        let (cache, states) = self.cache.bytes();
        let weights = bytes(&self.matrices) + vectors;
        Memory { weights, workspace: bytes(&self.buffers), cache, states }
    }
}

impl Weights for Reference {
    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn held(&self, _: &'static QuantType, rows: usize, cols: usize, _: Mode) -> Held {
        Held { layout: "f32", bytes: Some(rows.saturating_mul(cols).saturating_mul(4)) }
    }

    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error> {
        self.matrix(spec).map(|matrix| Table(matrix.0))
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        self.matrices.push(Self::dequantised(&spec)?);
        Ok(Matrix(self.matrices.len() - 1))
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        self.vectors.push(values);
        Vector(self.vectors.len() - 1)
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        if let Some(problem) = spec.broken() {
            return Err(Error::Experts(problem));
        }
        self.experts.push(spec);
        Ok(Experts(self.experts.len() - 1))
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        _rows: usize,
    ) -> Result<Rope, Error> {
        self.ropes.push(Rotation { frequencies, magnitude, pairs, angles: Vec::new() });
        Ok(Rope(self.ropes.len() - 1))
    }
}
