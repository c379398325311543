//! The specification of the device seam: every operation as plain loops over f32, for tests and
//! for `gannet verify --device reference`.
//!
//! Weights are dequantised when they are loaded, the KV cache holds f32 rows, and the calling
//! thread computes everything in ascending order. Instruction sets, memory policies and limits of
//! threads change nothing here.

mod adapters;
mod cache;
mod gates;
mod recurrent;
mod rotation;
mod sparse;
mod streams;

use crate::{
    AdaptedRows, AttentionSpec, Backend, Batch, BlockCopy, Buffer, CacheSpec, Compression, Device,
    Error, Experts, ExpertsSpec, Gate, HeadColumns, Held, HyperSpec, IndexSpec, LongRows,
    Magnitude, Matrix, MatrixSpec, Memory, Mode, Pairs, REFERENCE, RecurrenceSpec, RmsNorm, Rope,
    Rounding, RowAttention, Selection, ShortConv, Table, Vector,
};
use cache::{Cache, CachedRows};
use gates::{gated, sigmoid};
use kernels::Isa;
use kernels::quant::QuantType;
use kernels::routing::{ExpertChoice, scale_weights};
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
    magnitude: Magnitude,
    pairs: Pairs,
    /// Cosine and sine of each angle, `[rows, pairs]`.
    angles: Vec<(f32, f32)>,
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
    cache: Cache,
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

impl Backend for Reference {
    fn device(&self) -> &'static Device {
        &REFERENCE
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

    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        self.cache = Cache::new(spec)?;
        Ok(())
    }

    fn copy_blocks(&mut self, copies: &[BlockCopy]) {
        self.cache.copy_blocks(copies);
    }

    fn copy_states(&mut self, copies: &[(u32, u32)]) {
        self.cache.copy_states(copies);
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        self.each_row(out, tokens.len(), |this, row, out| {
            out.copy_from_slice(this.matrices[table.0].row(tokens[row] as usize));
        });
    }

    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let weights = this.vectors[norm.weight.0].chunks_exact(norm.unit).cycle();
            let units = this.row(x, row).chunks_exact(norm.unit).zip(weights);
            for ((x, weight), out) in units.zip(out.chunks_exact_mut(norm.unit)) {
                let scale = 1.0 / (dot(x, x) / x.len() as f32 + norm.eps).sqrt();
                for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * scale * weight;
                }
            }
        });
    }

    fn center(&mut self, x: Buffer, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let x = this.row(x, row);
            let mean = x.iter().sum::<f32>() / x.len() as f32;
            out.iter_mut().zip(x).for_each(|(out, x)| *out = x - mean);
        });
    }

    fn activate(&mut self, kind: Gate, x: Buffer, rows: usize) {
        self.each_row(x, rows, |_, _, x| x.iter_mut().for_each(|x| *x = gated(kind, *x, 1.0)));
    }

    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        for &(matrix, out) in outputs {
            self.each_row(out, rows, |this, row, out| {
                out.copy_from_slice(&this.product(matrix, this.row(x, row)));
            });
        }
    }

    fn takes_adapters(&self) -> bool {
        true
    }

    fn add_low_rank(&mut self, x: Buffer, outputs: &[(usize, Buffer)], adapted: &[AdaptedRows]) {
        self.low_rank_products(x, outputs, adapted);
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

    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>) {
        let of_row = |row: usize| &self.ropes[long.of_row(row).unwrap_or(rope).0];
        let rows = positions.iter().enumerate();
        let angles = rows.flat_map(|(row, position)| of_row(row).angles_at(*position)).collect();
        self.ropes[rope.0].angles = angles;
    }

    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.turn_heads(x, rope, rows, 1.0);
    }

    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.turn_heads(x, rope, rows, -1.0);
    }

    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch) {
        let rows = &mut self.cache.layers[layer][0];
        for (row, position, table) in rows_of(batch, rows.group) {
            let slot = rows.slot(position, table);
            rows.keys.row_mut(slot).copy_from_slice(self.buffers[keys.0].row(row));
            if let Some(values) = values {
                rows.values.row_mut(slot).copy_from_slice(self.buffers[values.0].row(row));
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
        let rows = &self.cache.layers[layer][0];
        let (heads, dim) = (rows.spec.heads, rows.spec.dim);
        let value_dim = rows.spec.value_dim();
        let mut values = vec![0.0; batch.rows() * spec.heads * value_dim];
        for (row, position, blocks) in rows_of(batch, rows.group) {
            let first = spec.window.first_seen(position);
            let end = batch.sequences()[batch.place(row).0].end();
            for h in 0..spec.heads {
                let (q, kv_head) = (&self.row(q, row)[h * dim..][..dim], h / (spec.heads / heads));
                let sink = spec.sinks.map(|sinks| self.vectors[sinks.0][h]);
                let seen = first..spec.window.seen_end(position, end);
                let head = Head { q, kv_head, scale: spec.scale, sink, seen, blocks };
                let start = (row * spec.heads + h) * value_dim;
                self.attend(rows, head, &mut values[start..][..value_dim]);
            }
        }
        self.buffers[out.0].values[..values.len()].copy_from_slice(&values);
    }

    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize) {
        self.each_row(x.buffer, rows, |_, _, values| {
            for head in values[x.first..].chunks_mut(x.stride) {
                kernels::kv::round(Isa::SCALAR, rounding, &mut head[..width]);
            }
        });
    }

    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, batch: &Batch) {
        let rows = &mut self.cache.layers[layer][which];
        for (row, position, table) in rows_of(batch, rows.group) {
            let slot = rows.slot(position, table);
            rows.keys.row_mut(slot).copy_from_slice(self.buffers[x.0].row(row));
        }
    }

    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        self.compress_rows(layer, spec, batch);
    }

    fn selection(&mut self, _rows: usize, top: usize) -> Result<Selection, Error> {
        self.selections.push((top, Vec::new()));
        Ok(Selection(self.selections.len() - 1))
    }

    fn select_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        self.select(layer, (q, weights), spec, batch);
    }

    fn attend_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    ) {
        self.attend_plain(layer, (q, out), spec, batch);
    }

    fn spread_streams(&mut self, x: Buffer, out: Buffer, rows: usize) {
        self.each_row(out, rows, |this, row, out| {
            let x = this.row(x, row);
            out.chunks_exact_mut(x.len()).for_each(|stream| stream.copy_from_slice(x));
        });
    }

    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        self.factors(z, spec, out, rows);
    }

    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        self.read(x, factors, out, rows);
    }

    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        self.write(x, factors, y, rows);
    }

    fn short_conv(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        self.store_rows(layer, which, x, batch);
        self.convolve((layer, which), spec, batch);
    }

    fn recur(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        self.take_through(layer, spec, batch);
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

    fn scale(&mut self, x: Buffer, factor: f32, rows: usize) {
        self.each_row(x, rows, |_, _, x| x.iter_mut().for_each(|x| *x *= factor));
    }

    fn soft_cap(&mut self, x: Buffer, cap: f32, rows: usize) {
        self.each_row(x, rows, |_, _, x| x.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh()));
    }

    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) {
        self.each_row(out, tokens.len(), |this, row, out| {
            let spec = &this.experts[experts.0];
            let bias = spec.correction.map_or(&[][..], |bias| &this.vectors[bias.0]);
            let (logits, count) = (this.row(logits, row), spec.routing.chosen);
            let mut chosen = vec![ExpertChoice::default(); count];
            match &spec.table {
                Some(table) => {
                    let experts = &table[tokens[row] as usize * count..][..count];
                    spec.routing.choose_from(logits, experts, &mut chosen);
                }
                None => {
                    let mut scratch = vec![0.0; spec.routing.scratch(logits.len())];
                    spec.routing.choose(logits, bias, &mut scratch, &mut chosen);
                }
            }
            if let Some(scales) = spec.scales {
                scale_weights(&mut chosen, &this.vectors[scales.0]);
            }
            chosen.sort_by_key(|choice| choice.expert);
            out.fill(0.0);
            for ExpertChoice { expert, weight } in chosen {
                let Some(held) = (expert as usize).checked_sub(spec.first) else { continue };
                if held < spec.held() {
                    this.add_expert(out, (spec, held), weight, this.row(x, row));
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
        let (cache, states) = self.cache.bytes();
        let weights = bytes(&self.matrices) + vectors;
        Memory { weights, workspace: bytes(&self.buffers), cache, states }
    }
}
