//! Operations of the CPU.

use super::super::core::{CpuCore, Workspace};
use super::super::machine::Cpu;
use super::super::ops::{rows, streams};
use crate::adapters::AdaptedRows;
use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{
    AttentionSpec, Buffer, Compression, Experts, HeadColumns, HyperSpec, IndexSpec, LongRows,
    Matrix, RecurrenceSpec, RmsNorm, Rope, RowAttention, Selection, ShortConv, Table,
};
use crate::map_op::MapOp;
use crate::seam::{AdapterOperations, BidirectionalAttention, Operations};
use base::AlignedVec;
use kernels::kv::Rounding;

impl Operations for Cpu {
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        let data = AlignedVec::try_zeroed(rows.saturating_mul(width))?;
        self.core.buffers.push(Workspace { width, data });
        Ok(Buffer(self.core.buffers.len() - 1))
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        match self.kept.of(table.0) {
            Some(kept) => kept.embed(&mut self.core, &self.tables[table.0], tokens, out),
            None => rows::embed(&mut self.core, &self.tables[table.0], tokens, out),
        }
    }

    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize) {
        rows::rms_norm(&mut self.core, x, norm, out, rows);
    }

    fn center(&mut self, x: Buffer, out: Buffer, rows: usize) {
        rows::center(&mut self.core, x, out, rows);
    }

    fn map(&mut self, op: MapOp, x: Buffer, rows: usize) {
        rows::map(&mut self.core, op, x, rows);
    }

    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        self.products.linear(&mut self.core, x, outputs, rows);
    }

    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize) {
        self.products.linear_heads(&mut self.core, x, weights, out, rows);
    }

    fn copy_heads(&mut self, x: HeadColumns, width: usize, to: HeadColumns, rows: usize) {
        rows::copy_heads(&mut self.core, x, width, to, rows);
    }

    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>) {
        self.ropes.compute_angles(&self.core, rope, positions, long);
    }

    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.ropes.rotate(&mut self.core, x, rope, rows);
    }

    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.ropes.rotate_back(&mut self.core, x, rope, rows);
    }

    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize) {
        rows::round(&mut self.core, x, width, rounding, rows);
    }

    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, batch: &Batch) {
        let values = &self.core.buffers[x.0].data;
        self.kv.store_plain(&self.core.pool, (layer, which), values, batch);
    }

    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        self.compressed.compress(&self.core, &self.ropes, &mut self.kv, layer, spec, batch);
    }

    fn selection(&mut self, rows: usize, top: usize) -> Result<Selection, Error> {
        self.selections.add(rows, top)
    }

    fn select_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        self.selections.select(&self.core, &self.kv, layer, (q, weights), spec, batch);
    }

    fn attend_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    ) {
        self.selections.attend(&mut self.core, &self.kv, layer, (q, out), spec, batch);
    }

    fn spread_streams(&mut self, x: Buffer, out: Buffer, rows: usize) {
        streams::spread(&mut self.core, x, out, rows);
    }

    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        streams::factors(&mut self.core, z, spec, out, rows);
    }

    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        streams::read(&mut self.core, x, factors, out, rows);
    }

    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        streams::write(&mut self.core, x, factors, y, rows);
    }

    fn gate_streams(
        &mut self,
        keys: Buffer,
        queries: Buffer,
        values: Buffer,
        out: Buffer,
        rows: usize,
    ) {
        streams::gate(&mut self.core, [keys, queries, values], out, rows);
    }

    fn short_conv(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        let (core, kv) = (&mut self.core, &mut self.kv);
        self.convolved.short_conv(core, kv, (layer, which), x, spec, batch);
    }

    fn recur(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch) {
        self.recurrence.recur(&mut self.core, &mut self.states, layer, spec, batch);
    }

    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch) {
        let CpuCore { isa, pool, buffers, .. } = &self.core;
        let v = values.map_or(&[][..], |values| &buffers[values.0].data);
        let k = &buffers[keys.0].data;
        self.kv.store((*isa, pool), layer, (k, v), batch);
    }

    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        let (core, kv) = (&mut self.core, &self.kv);
        self.attention.attend(core, kv, self.mode, (layer, q, out), spec, batch);
    }

    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) {
        self.products.limit(&self.core, [self.experts.first_of(experts)], tokens.len());
        let (core, products) = (&mut self.core, &mut self.products);
        self.experts.mix(core, products, (x, logits), experts, out, tokens);
        self.core.pool.limit(None);
    }

    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer) {
        rows::gather(&mut self.core, x, rows, out);
    }

    fn read(&self, x: Buffer, rows: usize) -> &[f32] {
        self.core.read_rows(x, 0..rows)
    }

    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32])) {
        let end = rows * self.core.width(x);
        change(&mut self.core.buffers[x.0].data[..end]);
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

impl AdapterOperations for Cpu {
    fn add_low_rank(&mut self, x: Buffer, outputs: &[(usize, Buffer)], adapted: &[AdaptedRows]) {
        self.low_rank.add(&mut self.core, x, outputs, adapted);
    }
}
