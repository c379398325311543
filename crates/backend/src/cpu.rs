//! The CPU: kernels over slices, spread over a thread pool along output elements.

mod attend;
mod buffers;
mod compress;
mod convolution;
mod experts;
mod heads;
mod inputs;
mod kv;
mod low_rank;
mod packed_parts;
mod packing;
mod products;
mod recurrence;
mod ropes;
mod sparse;
mod states;
mod stream;
mod threads;
mod weights;

use crate::{
    AdaptedRows, AttentionSpec, Backend, Batch, BlockCopy, Buffer, CPU, CacheSpec, Compression,
    Device, Error, ExpertBytes, ExpertUse, Experts, ExpertsSpec, Gate, HeadColumns, Held,
    HyperSpec, IndexSpec, LongRows, Magnitude, Matrix, MatrixSpec, Memory, Mode, PackedMatrix,
    Pairs, RecurrenceSpec, RmsNorm, Rope, Rounding, RowAttention, Selection, ShortConv, Storage,
    StreamPlan, StreamStats, Table, Vector,
};
use attend::AttentionPlan;
use base::{AlignedVec, Profile, ThreadPool};
use buffers::Workspace;
use compress::CompressScratch;
use experts::{ExpertGroup, ExpertScratch};
pub use inputs::InputSums;
use kernels::hyper::{self, Mixing};
use kernels::layout::STORED;
use kernels::quant::QuantType;
use kernels::{Isa, elementwise, rope};
use kv::KvCache;
use low_rank::LowRankScratch;
use products::{Rounded, scratch};
use recurrence::RecurrencePlan;
use ropes::RopeTable;
use sparse::SelectionMemory;
use states::StateMemory;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use weights::{Matrices, packed_layout};

/// Rows times width below which an operation is not worth handing to other threads.
const SERIAL_VALUES: usize = 16 * 1024;

/// Executes on this machine's CPU.
pub struct Cpu {
    isa: Isa,
    mode: Mode,
    pool: ThreadPool,
    buffers: Vec<Workspace>,
    tables: Vec<MatrixSpec>,
    matrices: Matrices,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
    kv: KvCache,
    states: StateMemory,
    attention: AttentionPlan,
    recurrence: RecurrencePlan,
    compressed: CompressScratch,
    selections: Vec<SelectionMemory>,
    /// Stored inputs of convolutions.
    convolved: Vec<f32>,
    experts: Vec<ExpertGroup>,
    expert_scratch: ExpertScratch,
    low_rank: LowRankScratch,
    /// Activations of the current products, rounded.
    rounded: Rounded,
    /// Rows of each head among the gathered rows; kept for the next call.
    cuts: Vec<Range<usize>>,
    /// Sums over the inputs of each matrix, where they are collected.
    inputs: Option<Vec<InputSums>>,
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cpu({:?}, {}, {} threads)", self.isa, self.mode.name(), self.pool.threads())
    }
}

impl Cpu {
    /// A CPU with `threads` threads on the best instruction set, or the one that the environment
    /// names.
    ///
    /// # Errors
    /// If the environment names an instruction set that this CPU lacks, or the system does not
    /// start the threads.
    pub fn new(threads: usize, mode: Mode) -> Result<Self, Error> {
        Self::with_isa(threads, mode, Isa::detect().map_err(Error::Isa)?)
    }

    /// A CPU that uses `isa`.
    ///
    /// # Errors
    /// If the system does not start the threads.
    pub fn with_isa(threads: usize, mode: Mode, isa: Isa) -> Result<Self, Error> {
        let pool = ThreadPool::new(threads).map_err(|source| Error::Threads { threads, source })?;
        Ok(Self {
            isa,
            mode,
            pool,
            buffers: Vec::new(),
            tables: Vec::new(),
            matrices: Matrices::default(),
            vectors: Vec::new(),
            ropes: Vec::new(),
            kv: KvCache::default(),
            states: StateMemory::default(),
            attention: AttentionPlan::default(),
            recurrence: RecurrencePlan::default(),
            compressed: CompressScratch::default(),
            selections: Vec::new(),
            convolved: Vec::new(),
            experts: Vec::new(),
            expert_scratch: ExpertScratch::default(),
            low_rank: LowRankScratch::default(),
            rounded: Rounded::default(),
            cuts: Vec::new(),
            inputs: None,
        })
    }
}

impl Backend for Cpu {
    fn device(&self) -> &'static Device {
        &CPU
    }

    fn identity(&self) -> String {
        self.isa.name().to_owned()
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn pin_caller(&self) {
        self.pool.pin_caller();
    }

    fn profile(&mut self, profile: Option<Arc<Profile>>) {
        self.pool.profile(profile);
    }

    fn begin_other(&self, operation: &str) {
        self.pool.begin(operation);
    }

    fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.pool.for_each(count, work);
    }

    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held {
        let (layout, bytes) = packed_layout(ty, rows, cols, mode, self.isa).unzip();
        Held { layout: layout.unwrap_or(&STORED).name, bytes }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error> {
        let data = AlignedVec::try_zeroed(rows.saturating_mul(width))?;
        self.buffers.push(Workspace { width, data });
        Ok(Buffer(self.buffers.len() - 1))
    }

    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error> {
        let row_bytes = spec.row_bytes()?;
        assert_eq!(Some(spec.bytes.len()), spec.rows.checked_mul(row_bytes), "table bytes");
        if spec.order.is_some() {
            return Err(Error::Order);
        }
        let bytes = self.matrices.hold(spec.bytes, spec.memory)?;
        self.tables.push(MatrixSpec { bytes, ..spec });
        Ok(Table(self.tables.len() - 1))
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        let mode = spec.mode.unwrap_or(self.mode);
        Ok(Matrix(self.matrices.add(spec, mode, self.isa)?))
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        let group = self.expert_group(spec)?;
        self.experts.push(group);
        Ok(Experts(self.experts.len() - 1))
    }

    fn use_packed(&mut self, matrices: Vec<(PackedMatrix, Storage)>) {
        self.matrices.use_packed(matrices);
    }

    fn packed_matrices(&self) -> Vec<(Matrix, PackedMatrix)> {
        self.packed_in_order()
    }

    fn read_packed(&mut self, matrix: Matrix) -> Cow<'_, [u8]> {
        self.packed_bytes(matrix)
    }

    fn prepare_weights(&mut self) -> bool {
        self.matrices.prepare_next(self.isa, &self.pool)
    }

    fn take_prepared(&mut self) -> bool {
        self.matrices.take_prepared()
    }

    fn layer_loaded(&mut self) {
        self.matrices.stream_layer();
    }

    fn stream_weights(&mut self, bytes: usize, threads: usize) -> Result<(), Error> {
        self.start_stream(bytes, threads)
    }

    fn foresees(&self) -> bool {
        self.matrices.stream.foresees()
    }

    fn foresee(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
        self.foresee_experts(logits, experts, tokens);
    }

    fn request_experts(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
        self.request_chosen(logits, experts, tokens);
    }

    fn stream_plan(&self) -> Option<StreamPlan> {
        self.plan_of_stream()
    }

    fn stream_stats(&self) -> Option<StreamStats> {
        self.matrices.stream.stats()
    }

    fn preload_experts(&mut self, shares: &[Vec<f32>]) {
        self.preload(shares);
    }

    fn expert_bytes(&self) -> Vec<ExpertBytes> {
        self.expert_sizes()
    }

    fn record_routes(&mut self) -> bool {
        self.expert_scratch.record_routes();
        true
    }

    fn take_routes(&mut self, out: &mut Vec<ExpertUse>) {
        self.expert_scratch.take_routes(out);
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        self.vectors.push(values);
        Vector(self.vectors.len() - 1)
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error> {
        self.ropes.push(RopeTable::new(frequencies, magnitude, pairs, rows)?);
        Ok(Rope(self.ropes.len() - 1))
    }

    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        (self.kv, self.states) = (KvCache::new(&self.pool, spec)?, StateMemory::new(spec)?);
        self.warm_up(spec);
        Ok(())
    }

    fn touch_cache(&mut self, group: usize, blocks: Range<usize>) {
        self.kv.touch(&self.pool, group, blocks);
    }

    fn begin(&mut self, batch: &Batch) {
        self.matrices.begin_step(self.isa, &self.pool);
        self.expert_scratch.note_batch(batch);
        self.matrices.stream.begin_step(self.expert_scratch.is_counted(), batch.rows());
    }

    fn end(&mut self) -> Result<(), Error> {
        self.matrices.end_step();
        self.matrices.stream.take_failure().map_or(Ok(()), Err)
    }

    fn copy_blocks(&mut self, copies: &[BlockCopy]) {
        copies.iter().for_each(|copy| self.kv.copy(*copy));
    }

    fn fingerprint(&self) -> Vec<f32> {
        kernels::fingerprint(self.isa)
    }

    fn stores_blocks(&self) -> bool {
        true
    }

    fn read_block(&self, group: usize, block: u32, out: &mut [u8]) {
        self.kv.read_block(&self.pool, group, block, out);
    }

    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]) {
        self.kv.write_block(&self.pool, group, block, bytes);
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        self.states.read(slot, out);
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        self.states.write(slot, bytes);
    }

    fn copy_states(&mut self, copies: &[(u32, u32)]) {
        copies.iter().for_each(|&(from, to)| self.states.copy(from, to));
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

    fn activate(&mut self, kind: Gate, x: Buffer, rows: usize) {
        self.each_row("activate", (x, rows), |this, _, x| elementwise::activate(this.isa, kind, x));
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

    fn takes_adapters(&self) -> bool {
        true
    }

    fn add_low_rank(&mut self, x: Buffer, outputs: &[(usize, Buffer)], adapted: &[AdaptedRows]) {
        self.low_rank_products(x, outputs, adapted);
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

    fn add_bias(&mut self, x: Buffer, bias: Vector, rows: usize) {
        self.each_row("add_bias", (x, rows), |this, _, row| {
            elementwise::add(this.isa, row, &this.vectors[bias.0]);
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

    fn apply_gate(&mut self, kind: Gate, gate: Buffer, up: Buffer, rows: usize) {
        self.each_row("apply_gate", (gate, rows), |this, row, gate| {
            elementwise::apply_gate(this.isa, kind, gate, this.row(up, row));
        });
    }

    fn scale_by_sigmoid(&mut self, x: Buffer, gate: Buffer, rows: usize) {
        self.each_row("scale_by_sigmoid", (x, rows), |this, row, x| {
            elementwise::scale_by_sigmoid(this.isa, x, this.row(gate, row)[0]);
        });
    }

    fn scale(&mut self, x: Buffer, factor: f32, rows: usize) {
        self.each_row("scale", (x, rows), |this, _, x| elementwise::scale(this.isa, x, factor));
    }

    fn soft_cap(&mut self, x: Buffer, cap: f32, rows: usize) {
        self.each_row("soft_cap", (x, rows), |this, _, x| elementwise::soft_cap(this.isa, x, cap));
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

    fn add(&mut self, x: Buffer, y: Buffer, rows: usize) {
        self.each_row("add", (x, rows), |this, row, x| {
            elementwise::add(this.isa, x, this.row(y, row));
        });
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

    fn input_sums(&mut self) -> Option<Vec<InputSums>> {
        Some(self.take_input_sums())
    }

    fn memory(&self) -> Memory {
        self.memory_in_use()
    }
}
