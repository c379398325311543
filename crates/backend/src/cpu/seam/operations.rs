//! Operations of the CPU.

use super::super::ops::products::scratch;
use super::super::ops::ropes::RopeTable;
use super::super::{Cpu, buffers::Workspace};
use crate::{
    AdapterOperations, AttentionSpec, Batch, BidirectionalAttention, Buffer, Compression, Error,
    Experts, HeadColumns, HyperSpec, IndexSpec, LongRows, MapOp, Matrix, MatrixSpec, Operations,
    RecurrenceSpec, RmsNorm, Rope, Rounding, RowAttention, Selection, ShortConv, Table,
};
use base::AlignedVec;
use kernels::hyper::{self, Mixing};
use kernels::{elementwise, rope};

impl Operations for Cpu {
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        let data = AlignedVec::try_zeroed(rows.saturating_mul(width))?;
        self.buffers.push(Workspace { width, data });
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        self.each_row("embed", (out, tokens.len()), |this, row, out| {
            let MatrixSpec { ty, cols, bytes, .. } = &this.tables[table.0];
            let row_bytes = ty.bytes_for(*cols).expect("checked in `table`");
            let start = tokens[row] as usize * row_bytes;
            let dequantize = ty.dequantize.expect("checked in `table`");
            dequantize(&bytes.read(start..start + row_bytes), out);
        });
    }

    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize) {
        self.each_row("rms_norm", (out, rows), |this, row, out| {
            let weights = this.vectors[norm.weight.0].chunks_exact(norm.unit).cycle();
            let units = this.row(x, row).chunks_exact(norm.unit).zip(weights);
            for ((x, weight), out) in units.zip(out.chunks_exact_mut(norm.unit)) {
                elementwise::rms_norm(this.isa, x, weight, norm.eps, out);
            }
        });
    }

    fn center(&mut self, x: Buffer, out: Buffer, rows: usize) {
        self.each_row("center", (out, rows), |this, row, out| {
            elementwise::center(this.isa, this.row(x, row), out);
        });
    }

    fn map(&mut self, op: MapOp, x: Buffer, rows: usize) {
        self.each_row(op.name(), (x, rows), |this, row, x| match op {
            MapOp::Activate(gate) => elementwise::activate(this.isa, gate, x),
            MapOp::Gate(gate, y) => elementwise::apply_gate(this.isa, gate, x, this.row(y, row)),
            MapOp::Add(y) => elementwise::add(this.isa, x, this.row(y, row)),
            MapOp::AddBias(bias) => elementwise::add(this.isa, x, &this.vectors[bias.0]),
            MapOp::Scale(factor) => elementwise::scale(this.isa, x, factor),
            MapOp::ScaleBySigmoid(gate) => {
                elementwise::scale_by_sigmoid(this.isa, x, this.row(gate, row)[0]);
            }
            MapOp::SoftCap(cap) => elementwise::soft_cap(this.isa, x, cap),
        });
    }

    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        self.defer(outputs.iter().map(|(matrix, _)| *matrix));
        for (matrix, _) in outputs {
            self.note_inputs(x, *matrix, rows);
        }
        self.limit(outputs.iter().map(|(matrix, _)| *matrix), rows);
        self.products(x, outputs, rows);
        self.pool.limit(None);
    }

    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize) {
        self.defer(weights.iter().copied());
        self.limit(weights.iter().copied(), rows);
        self.head_products(x, weights, out, rows);
        self.pool.limit(None);
    }

    fn copy_heads(&mut self, x: HeadColumns, width: usize, to: HeadColumns, rows: usize) {
        self.each_row("copy_heads", (to.buffer, rows), |this, row, out| {
            let heads = out[to.first..].chunks_mut(to.stride);
            for (out, x) in heads.zip(this.row(x.buffer, row)[x.first..].chunks(x.stride)) {
                out[..width].copy_from_slice(&x[..width]);
            }
        });
    }

    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>) {
        self.pool.begin("rope_angles");
        self.compute_angles(rope, positions, long);
    }

    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.each_row("rotate", (x.buffer, rows), |this, row, values| {
            let (RopeTable { pairs, .. }, cos, sin) = this.angles(rope, row);
            rope::rotate(this.isa, &mut values[x.first..], x.stride, *pairs, cos, sin);
        });
    }

    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.each_row("rotate_back", (x.buffer, rows), |this, row, values| {
            let (RopeTable { pairs, .. }, cos, sin) = this.angles(rope, row);
            scratch(sin.len(), |negated| {
                negated.iter_mut().zip(sin).for_each(|(to, from)| *to = -from);
                rope::rotate(this.isa, &mut values[x.first..], x.stride, *pairs, cos, negated);
            });
        });
    }

    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize) {
        if rounding == Rounding::None {
            return;
        }
        self.each_row("round", (x.buffer, rows), |this, _, values| {
            for head in values[x.first..].chunks_mut(x.stride) {
                kernels::kv::round(this.isa, rounding, &mut head[..width]);
            }
        });
    }

    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, batch: &Batch) {
        let data = self.take(x);
        self.kv.store_plain(&self.pool, (layer, which), &data, batch);
        self.put(x, data);
    }

    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        self.compress_rows(layer, spec, batch);
    }

    fn selection(&mut self, rows: usize, top: usize) -> Result<Selection, Error> {
        self.new_selection(rows, top).map(Selection)
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
        self.each_row("spread_streams", (out, rows), |this, row, out| {
            let x = this.row(x, row);
            out.chunks_exact_mut(x.len()).for_each(|stream| stream.copy_from_slice(x));
        });
    }

    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        let HyperSpec { streams, iterations, eps, base, scale, head } = *spec;
        let mixing = Mixing { streams, iterations, eps };
        self.each_row("stream_factors", (out, rows), |this, row, out| {
            let (base, scale) = (&this.vectors[base.0], &this.vectors[scale.0]);
            let factors = if head { hyper::head_mixing } else { hyper::mixing };
            factors(this.isa, mixing, this.row(z, row), base, scale, out);
        });
    }

    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        self.each_row("read_streams", (out, rows), |this, row, out| {
            let x = this.row(x, row);
            let read = &this.row(factors, row)[..x.len() / out.len()];
            hyper::read_streams(this.isa, x, read, out);
        });
    }

    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        self.each_row("write_streams", (x, rows), |this, row, x| {
            hyper::write_streams(this.isa, x, this.row(factors, row), this.row(y, row));
        });
    }

    fn short_conv(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        self.store_and_round((layer, which), x, batch);
        self.convolve((layer, which), x, spec, batch);
    }

    fn recur(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        self.prepare_recurrence(self.states.place(layer), spec, batch.rows());
        self.run_recurrence(layer, spec, batch);
    }

    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch) {
        let v = values.map_or(&[][..], |values| &self.buffers[values.0].data);
        let k = &self.buffers[keys.0].data;
        self.kv.store((self.isa, &self.pool), layer, (k, v), batch);
    }

    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        self.attend((layer, q, out), spec, batch);
    }

    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) {
        self.limit([self.first_of(experts)], tokens.len());
        self.mix(x, logits, experts, out, tokens);
        self.pool.limit(None);
    }

    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer) {
        self.each_row("gather", (out, rows.len()), |this, row, out| {
            out.copy_from_slice(this.row(x, rows[row] as usize));
        });
    }

    fn read(&self, x: Buffer, rows: usize) -> &[f32] {
        &self.buffers[x.0].data[..rows * self.width(x)]
    }

    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32])) {
        let end = rows * self.width(x);
        change(&mut self.buffers[x.0].data[..end]);
    }

    fn adapters(&mut self) -> Option<&mut dyn AdapterOperations> {
        Some(self)
    }

    fn bidirectional(&mut self) -> Option<&mut dyn BidirectionalAttention> {
        Some(self)
    }
}

impl BidirectionalAttention for Cpu {
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
