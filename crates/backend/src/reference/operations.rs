//! Operations as they are defined.

use super::gates::{gated, sigmoid, softplus};
use super::machine::{Head, Reference, rows_of};
use super::rows::{Rows, dot};
use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{
    AttentionSpec, Buffer, Compression, Experts, HeadColumns, HyperSpec, IndexSpec, LongRows,
    Matrix, RecurrenceSpec, RmsNorm, Rope, RowAttention, Selection, ShortConv, Table,
};
use crate::map_op::MapOp;
use crate::seam::{AdapterOperations, BidirectionalAttention, Operations};
use kernels::Isa;
use kernels::kv::Rounding;
use kernels::routing::{ExpertChoice, scale_weights};

impl Operations for Reference {
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        self.buffers.push(Rows::zeroed(rows, width));
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        let width = self.matrices[table.0].width;
        let each = self.buffers[out.0].width / width;
        self.each_row(out, tokens.len() / each, |this, row, out| {
            for (at, out) in out.chunks_exact_mut(width).enumerate() {
                let token = tokens[row * each + at];
                out.copy_from_slice(this.matrices[table.0].row(token as usize));
            }
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

    fn map(&mut self, op: MapOp, x: Buffer, rows: usize) {
        self.each_row(x, rows, |this, row, x| {
            let width = x.len();
            for (at, x) in x.iter_mut().enumerate() {
                let of = |y: Buffer| this.row(y, row)[at];
                let of_part = |y: Buffer| {
                    let parts = this.row(y, row);
                    parts[at / (width / parts.len())]
                };
                *x = match op {
                    MapOp::Activate(gate) => gated(gate, *x, 1.0),
                    MapOp::Gate(gate, y) => gated(gate, *x, of(y)),
                    MapOp::Add(y) => *x + of(y),
                    MapOp::AddBias(bias) => *x + this.vectors[bias.0][at],
                    MapOp::Scale(factor) => *x * factor,
                    MapOp::ScaleBySigmoid(gate) => *x * sigmoid(of_part(gate)),
                    MapOp::ScaleBySoftplus(gate) => *x * softplus(of_part(gate)),
                    MapOp::ScaleByLines(y, lines) => {
                        let lines = &this.vectors[lines.0];
                        let (slopes, bases) = lines.split_at(lines.len() / 2);
                        let part = at / (width / slopes.len());
                        *x * (slopes[part] * this.row(y, row)[0] + bases[part])
                    }
                    MapOp::SoftCap(cap) => cap * (*x / cap).tanh(),
                };
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

    fn gate_streams(
        &mut self,
        keys: Buffer,
        queries: Buffer,
        values: Buffer,
        out: Buffer,
        rows: usize,
    ) {
        self.gate([keys, queries, values], out, rows);
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

    fn adapters(&mut self) -> Option<&mut dyn AdapterOperations> {
        Some(self)
    }

    fn bidirectional(&mut self) -> Option<&mut dyn BidirectionalAttention> {
        Some(self)
    }
}

impl BidirectionalAttention for Reference {
    fn attend_both_ways(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        self.attention(layer, q, out, spec, batch);
    }
}
