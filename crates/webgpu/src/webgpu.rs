//! The backend: memory behind handles, and the operations as kernels.

mod experts;
mod held;
mod kv;
mod map;
mod products;
mod recurrent;
mod rows;
mod sparse;
mod streams;

pub(crate) use held::device::WebGpu;

use crate::webgpu::held::cache::{KvCache, block_bytes};
use crate::webgpu::held::device::DeviceRows;
use crate::webgpu::held::rotation::Rotation;
use crate::webgpu::held::states::{States, state_bytes};
use backend::{
    AttentionSpec, Batch, BlockCopy, Buffer, Cache, CacheSpec, Compression, Device, Error,
    Executor, Experts, ExpertsSpec, FreeMemory, HeadColumns, Held, HyperSpec, IndexSpec, KvType,
    LongRows, Magnitude, MapOp, Matrix, MatrixSpec, Memory, Mode, Operations, Pairs,
    RecurrenceSpec, RmsNorm, Rope, Rounding, RowAttention, Rows, Selection, ShortConv, State,
    Table, Vector, Weights,
};
use kernels::quant::QuantType;

impl Executor for WebGpu {
    fn device(&self) -> &'static Device {
        self.device
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn threads(&self) -> usize {
        1
    }

    fn free_memory(&self) -> Option<FreeMemory> {
        // What is held is no longer part of either.
        let host = FreeMemory::of_this_machine(Memory::default()).filter(|_| self.shares_memory);
        let bytes = [self.gpu.spare(), host.map(|free| free.bytes)].into_iter().flatten().min()?;
        Some(FreeMemory { bytes, spare: bytes })
    }

    fn begin(&mut self, batch: &Batch) {
        let begun = self.step.begin(&mut self.gpu, batch, self.kv.groups());
        self.note(begun);
    }

    fn end(&mut self) -> Result<(), Error> {
        self.gpu.submit();
        let failed = self.failed.take();
        self.gpu.check().and(failed.map_or(Ok(()), Err))
    }

    fn memory(&self) -> Memory {
        Memory {
            weights: self.matrices.bytes()
                + self.vectors.iter().map(|v| 4 * v.len()).sum::<usize>(),
            workspace: self.workspace_bytes
                + self.matrices.workspace_bytes()
                + self.expert_work.bytes()
                + self.kv.workspace_bytes()
                + self.sparse.bytes(),
            cache: self.kv.bytes(),
            states: self.states.bytes(),
        }
    }
}

impl Weights for WebGpu {
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held {
        held::matrices::held(ty, rows, cols, mode)
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error> {
        let row_bytes = spec.row_bytes()?;
        assert_eq!(Some(spec.bytes.len()), spec.rows.checked_mul(row_bytes), "table bytes");
        if spec.order.is_some() {
            return Err(Error::Order);
        }
        self.tables.push(spec);
        Ok(Table(self.tables.len() - 1))
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        self.matrices.add(spec, self.mode).map(Matrix)
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        let made = self.gpu.filled(bytemuck::cast_slice(&values));
        match made {
            Ok(words) => self.vectors.push(words),
            Err(error) => {
                self.note(Err(error));
                self.vectors.push(self.step.words().clone());
            }
        }
        Vector(self.vectors.len() - 1)
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        self.add_experts(spec).map(Experts)
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error> {
        let angles = self.workspace(rows.saturating_mul(2 * frequencies.len()))?;
        self.ropes.push(Rotation { frequencies, magnitude, pairs, angles });
        Ok(Rope(self.ropes.len() - 1))
    }
}

impl Cache for WebGpu {
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        // The weights are complete now.
        self.upload()?;
        std::mem::take(&mut self.kv).free(&mut self.gpu);
        self.kv = KvCache::new(&mut self.gpu, spec)?;
        self.states = States::new(&mut self.gpu, spec)?;
        self.reserve_scores(spec)?;
        self.failed.take().map_or_else(|| self.gpu.check(), Err)
    }

    fn block_bytes(&self, rows: &Rows, block: usize, ty: KvType) -> usize {
        block_bytes(rows, block, ty)
    }

    fn state_bytes(&self, state: &State) -> usize {
        state_bytes(state)
    }

    fn copy_blocks(&mut self, copies: &[BlockCopy]) {
        self.copy_kv_blocks(copies);
    }

    fn copy_states(&mut self, copies: &[(u32, u32)]) {
        self.copy_state_slots(copies);
    }
}

impl Operations for WebGpu {
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        let words = self.workspace(rows.saturating_mul(width))?;
        self.buffers.push(DeviceRows { width, words, host: Vec::new() });
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer) {
        let MatrixSpec { ty, cols, bytes, .. } = &self.tables[table.0];
        let row_bytes = ty.bytes_for(*cols).expect("checked in `table`");
        let dequantize = ty.dequantize.expect("checked in `table`");
        let mut values = vec![0.0; tokens.len() * cols];
        for (token, values) in tokens.iter().zip(values.chunks_exact_mut(*cols)) {
            let start = *token as usize * row_bytes;
            dequantize(&bytes.read(start..start + row_bytes), values);
        }
        self.gpu.submit();
        self.gpu.write(&self.buffers[out.0].words, 0, bytemuck::cast_slice(&values));
    }

    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize) {
        self.normalise([x, out], norm, rows);
    }

    fn center(&mut self, x: Buffer, out: Buffer, rows: usize) {
        self.center_rows(x, out, rows);
    }

    fn map(&mut self, op: MapOp, x: Buffer, rows: usize) {
        self.map_values(op, x, rows);
    }

    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize) {
        let done = self.products(x, outputs, rows);
        self.note(done);
    }

    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize) {
        let done = self.head_products(x, weights, out, rows);
        self.note(done);
    }

    fn copy_heads(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize) {
        self.columns(x, width, out, rows);
    }

    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>) {
        self.set_angles(rope, positions, long);
    }

    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.turn(x, rope, rows, 1.0);
    }

    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize) {
        self.turn(x, rope, rows, -1.0);
    }

    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, _: &Batch) {
        self.store_heads(layer, keys, values);
    }

    fn attention(&mut self, layer: usize, q: Buffer, out: Buffer, spec: &AttentionSpec, _: &Batch) {
        let done = self.attend(layer, q, out, spec);
        self.note(done);
    }

    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize) {
        self.round_heads(x, width, rounding, rows);
    }

    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, _: &Batch) {
        self.store_plain(layer, which, x);
    }

    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        self.compress_rows(layer, spec, batch);
    }

    fn selection(&mut self, rows: usize, top: usize) -> Result<Selection, Error> {
        self.new_choice(rows, top).map(Selection)
    }

    fn select_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        let done = self.choose_rows(layer, q, weights, spec, batch);
        self.note(done);
    }

    fn attend_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    ) {
        let done = self.attend_plain(layer, q, out, spec, batch);
        self.note(done);
    }

    fn spread_streams(&mut self, x: Buffer, out: Buffer, rows: usize) {
        self.spread(x, out, rows);
    }

    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize) {
        self.factors(z, spec, out, rows);
    }

    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize) {
        self.mix_streams(x, factors, out, rows);
    }

    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize) {
        self.update_streams(x, factors, y, rows);
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
        self.convolve(layer, which, x, spec, batch);
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
        let done = self.mix(x, logits, experts, out, tokens);
        self.note(done);
    }

    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer) {
        self.pick(x, rows, out);
    }

    fn fetch(&mut self, x: Buffer, rows: usize) {
        let DeviceRows { width, words, host } = &mut self.buffers[x.0];
        host.resize(rows * *width, 0.0);
        self.gpu.read(words, 0, bytemuck::cast_slice_mut(host));
    }

    fn read(&self, x: Buffer, rows: usize) -> &[f32] {
        let DeviceRows { width, host, .. } = &self.buffers[x.0];
        &host[..rows * width]
    }

    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32])) {
        self.fetch(x, rows);
        let DeviceRows { words, host, .. } = &mut self.buffers[x.0];
        change(host);
        self.gpu.write(words, 0, bytemuck::cast_slice(host));
    }
}
