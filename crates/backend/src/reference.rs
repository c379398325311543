//! The specification of the device seam: every operation as plain loops over f32, for tests and
//! for `gannet verify --device reference`.
//!
//! Weights are dequantised when they are loaded, the KV cache holds f32 rows, and the calling
//! thread computes everything in ascending order. Instruction sets, memory policies and limits of
//! threads change nothing here.

use crate::{
    AttentionSpec, Backend, Batch, Buffer, DEVICES, Device, Error, Experts, ExpertsSpec, Gate,
    HeadColumns, Held, KvType, LayerCache, Matrix, MatrixSpec, Memory, Mode, Pairs, Rope, Table,
    Vector,
};
use kernels::quant::QuantType;
use kernels::routing::ExpertChoice;
use std::ops::Range;

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
    magnitude: f32,
    pairs: Pairs,
    /// Cosine and sine of each angle, `[rows, pairs]`.
    angles: Vec<(f32, f32)>,
}

/// Keys and values of one layer.
struct LayerRows {
    spec: LayerCache,
    /// `[blocks * block, heads * dim]`.
    keys: Rows,
    /// `[blocks * block, heads * dim]`; without rows where values are part of the keys.
    values: Rows,
}

/// Executes the operations of [`Backend`] as they are defined, without regard to speed.
#[derive(Default)]
pub(crate) struct Reference {
    buffers: Vec<Rows>,
    /// Matrices, `[outputs, inputs]`, and embedding tables, `[tokens, width]`.
    matrices: Vec<Rows>,
    vectors: Vec<Vec<f32>>,
    experts: Vec<ExpertsSpec>,
    ropes: Vec<Rotation>,
    layers: Vec<LayerRows>,
    /// Positions of a KV block.
    block: usize,
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
            Mode::Fast => Err(Error::Device("the reference device has no mode but exact")),
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
        let (gate, up) = (biased(spec.gate[expert], 0, x), biased(spec.up[expert], 1, x));
        let inner: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| gated(spec.kind, *g, *u)).collect();
        biased(spec.down[expert], 2, &inner)
    }

    /// Attention of one query head, `[dim]`, over the positions that it sees: `[value dim]`.
    fn attend<'a>(&self, layer: &'a LayerRows, head: Head<'_>, out: &mut [f32]) {
        let dim = layer.spec.dim;
        let slots = head.seen.map(|position| slot(head.blocks, self.block, position));
        let of_head = |rows: &'a Rows, slot: usize| &rows.row(slot)[head.kv_head * dim..][..dim];
        let scores: Vec<f32> = (slots.clone())
            .map(|slot| dot(head.q, of_head(&layer.keys, slot)) * head.scale)
            .collect();
        let most = scores.iter().copied().chain(head.sink).fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum = weights.iter().sum::<f32>() + head.sink.map_or(0.0, |sink| (sink - most).exp());
        let rows = if layer.spec.latent.is_some() { &layer.keys } else { &layer.values };
        out.fill(0.0);
        for (slot, weight) in slots.zip(weights) {
            add_scaled(out, of_head(rows, slot), weight / sum);
        }
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

/// The rows of a batch: row, position, block table of its sequence.
fn rows_of(batch: &Batch) -> impl Iterator<Item = (usize, usize, &[u32])> {
    batch.sequences().iter().flat_map(move |sequence| {
        let positions = sequence.rows.clone().zip(sequence.position..);
        positions.map(move |(row, position)| (row, position, batch.block_table(sequence)))
    })
}

/// Where the cache holds `position` of the sequence with this block table.
fn slot(blocks: &[u32], block: usize, position: usize) -> usize {
    blocks[position / block] as usize * block + position % block
}

/// `x += factor * y`.
fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn gated(kind: Gate, gate: f32, up: f32) -> f32 {
    match kind {
        Gate::Silu => gate * sigmoid(gate) * up,
        Gate::Clamped { alpha, limit } => {
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * sigmoid(alpha * gate) * (up + 1.0)
        }
        Gate::SiluClamped { limit } => gated(Gate::Silu, gate.min(limit), up.clamp(-limit, limit)),
        Gate::Sigmoid => sigmoid(gate) * up,
    }
}

impl Backend for Reference {
    fn device(&self) -> &'static Device {
        &DEVICES[1]
    }

    fn identity(&self) -> String {
        "reference".to_owned()
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn threads(&self) -> usize {
        1
    }

    fn held(&self, _: &'static QuantType, rows: usize, cols: usize, _: Mode) -> Held {
        Held { layout: "f32", bytes: Some(rows.saturating_mul(cols).saturating_mul(4)) }
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        self.buffers.push(Rows::zeroed(rows, width));
        Ok(Buffer(self.buffers.len() - 1))
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
        self.experts.push(spec);
        Ok(Experts(self.experts.len() - 1))
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: f32,
        pairs: Pairs,
        _rows: usize,
    ) -> Result<Rope, Error> {
        self.ropes.push(Rotation { frequencies, magnitude, pairs, angles: Vec::new() });
        Ok(Rope(self.ropes.len() - 1))
    }

    fn cache(
        &mut self,
        layers: &[LayerCache],
        block: usize,
        blocks: usize,
        ty: KvType,
    ) -> Result<(), Error> {
        if ty != KvType::F32 {
            return Err(Error::Device("the reference device has no KV cache but f32"));
        }
        let zeroed = |spec: &LayerCache| {
            let (width, rows) = (spec.heads * spec.dim, blocks * block);
            let values = Rows::zeroed(if spec.latent.is_some() { 0 } else { rows }, width);
            LayerRows { spec: *spec, keys: Rows::zeroed(rows, width), values }
        };
        self.layers = layers.iter().map(zeroed).collect();
        self.block = block;
        Ok(())
    }

    fn copy_blocks(&mut self, blocks: &[(u32, u32)]) {
        for &(from, to) in blocks {
            for LayerRows { keys, values, .. } in &mut self.layers {
                for Rows { width, values } in [keys, values] {
                    let len = (self.block * *width).min(values.len());
                    let (from, to) = (from as usize * len, to as usize * len);
                    values.copy_within(from..from + len, to);
                }
            }
        }
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        self.each_row(out, tokens.len(), |this, row, out| {
            out.copy_from_slice(this.matrices[table.0].row(tokens[row] as usize));
        });
    }

    fn rms_norm(&mut self, x: Buffer, weight: Vector, eps: f32, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let weight = &this.vectors[weight.0];
            let units = this.row(x, row).chunks_exact(weight.len());
            for (x, out) in units.zip(out.chunks_exact_mut(weight.len())) {
                let scale = 1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt();
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * weight;
                }
            }
        });
    }

    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        for &(matrix, out) in outputs {
            self.each_row(out, rows, |this, row, out| {
                out.copy_from_slice(&this.product(matrix, this.row(x, row)));
            });
        }
    }

    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize) {
        self.each_row(out.buffer, rows, |this, row, values| {
            for (head, matrix) in weights.iter().enumerate() {
                let inputs = this.matrices[matrix.0].width;
                let x = &this.row(x.buffer, row)[x.first + head * x.stride..][..inputs];
                let product = this.product(*matrix, x);
                values[out.first + head * out.stride..][..product.len()].copy_from_slice(&product);
            }
        });
    }

    fn copy_heads(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize) {
        self.each_row(out.buffer, rows, |this, row, values| {
            let heads = this.row(x.buffer, row)[x.first..].chunks(x.stride);
            for (x, out) in heads.zip(values[out.first..].chunks_mut(out.stride)) {
                out[..width].copy_from_slice(&x[..width]);
            }
        });
    }

    fn add_bias(&mut self, x: Buffer, bias: Vector, rows: usize) {
        self.each_row(x, rows, |this, _, row| {
            add_scaled(row, &this.vectors[bias.0], 1.0);
        });
    }

    fn rope_angles(&mut self, rope: Rope, positions: &[u32]) {
        let Rotation { frequencies, magnitude, angles, .. } = &mut self.ropes[rope.0];
        angles.clear();
        for position in positions {
            for frequency in frequencies.iter() {
                let (sin, cos) = (*position as f32 * frequency).sin_cos();
                angles.push((cos * *magnitude, sin * *magnitude));
            }
        }
    }

    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.each_row(x.buffer, rows, |this, row, values| {
            let Rotation { frequencies, pairs, angles, .. } = &this.ropes[rope.0];
            let count = frequencies.len();
            for head in values[x.first..].chunks_mut(x.stride) {
                for (pair, (cos, sin)) in angles[row * count..][..count].iter().enumerate() {
                    let (first, second) = match pairs {
                        Pairs::Halves => (pair, pair + count),
                        Pairs::Interleaved => (2 * pair, 2 * pair + 1),
                    };
                    let (a, b) = (head[first], head[second]);
                    (head[first], head[second]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
        });
    }

    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch) {
        let layer = &mut self.layers[layer];
        for (row, position, table) in rows_of(batch) {
            let slot = slot(table, self.block, position);
            layer.keys.row_mut(slot).copy_from_slice(self.buffers[keys.0].row(row));
            if let Some(values) = values {
                layer.values.row_mut(slot).copy_from_slice(self.buffers[values.0].row(row));
            }
        }
    }

    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        let layer = &self.layers[layer];
        let LayerCache { heads, dim, latent } = layer.spec;
        let value_dim = latent.unwrap_or(dim);
        let mut values = vec![0.0; batch.rows() * spec.heads * value_dim];
        for (row, position, blocks) in rows_of(batch) {
            let first = (position + 1).saturating_sub(spec.window.unwrap_or(position + 1));
            for h in 0..spec.heads {
                let (q, kv_head) = (&self.row(q, row)[h * dim..][..dim], h / (spec.heads / heads));
                let sink = spec.sinks.map(|sinks| self.vectors[sinks.0][h]);
                let seen = first..position + 1;
                let head = Head { q, kv_head, scale: spec.scale, sink, seen, blocks };
                let start = (row * spec.heads + h) * value_dim;
                self.attend(layer, head, &mut values[start..][..value_dim]);
            }
        }
        self.buffers[out.0].values[..values.len()].copy_from_slice(&values);
    }

    fn apply_gate(&mut self, kind: Gate, gate: Buffer, up: Buffer, rows: usize) {
        self.each_row(gate, rows, |this, row, gate| {
            gate.iter_mut().zip(this.row(up, row)).for_each(|(g, u)| *g = gated(kind, *g, *u));
        });
    }

    fn scale_by_sigmoid(&mut self, x: Buffer, gate: Buffer, rows: usize) {
        self.each_row(x, rows, |this, row, x| {
            let factor = sigmoid(this.row(gate, row)[0]);
            x.iter_mut().for_each(|x| *x *= factor);
        });
    }

    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        rows: usize,
    ) {
        self.each_row(out, rows, |this, row, out| {
            let spec = &this.experts[experts.0];
            let bias = spec.correction.map_or(&[][..], |bias| &this.vectors[bias.0]);
            let mut chosen = vec![ExpertChoice::default(); spec.routing.chosen];
            spec.routing.choose(this.row(logits, row), bias, &mut Vec::new(), &mut chosen);
            chosen.sort_by_key(|choice| choice.expert);
            out.fill(0.0);
            for ExpertChoice { expert, weight } in chosen {
                let Some(held) = (expert as usize).checked_sub(spec.first) else { continue };
                if held < spec.gate.len() {
                    add_scaled(out, &this.expert(spec, held, this.row(x, row)), weight);
                }
            }
        });
    }

    fn add(&mut self, x: Buffer, y: Buffer, rows: usize) {
        self.each_row(x, rows, |this, row, x| {
            add_scaled(x, this.row(y, row), 1.0);
        });
    }

    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer) {
        self.each_row(out, rows.len(), |this, row, out| {
            out.copy_from_slice(this.row(x, rows[row] as usize));
        });
    }

    fn read(&self, x: Buffer, rows: usize) -> &[f32] {
        let Rows { width, values } = &self.buffers[x.0];
        &values[..rows * width]
    }

    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32])) {
        let Rows { width, values } = &mut self.buffers[x.0];
        change(&mut values[..rows * *width]);
    }

    fn memory(&self) -> Memory {
        let bytes = |rows: &[Rows]| rows.iter().map(|rows| 4 * rows.values.len()).sum::<usize>();
        let vectors = self.vectors.iter().map(|vector| 4 * vector.len()).sum::<usize>();
        let cached = |layer: &LayerRows| 4 * (layer.keys.values.len() + layer.values.values.len());
        let cache = self.layers.iter().map(cached).sum();
        Memory { weights: bytes(&self.matrices) + vectors, workspace: bytes(&self.buffers), cache }
    }
}
