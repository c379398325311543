//! The device seam: where weights, workspace and KV cache are held, and the coarse operations that
//! a model calls on them.
//!
//! A model holds small handles ([`Matrix`], [`Vector`], [`Buffer`], [`Rope`]); a [`Backend`] owns
//! what they refer to. Operations take the number of rows in use, so that a workspace made once
//! serves every batch without allocation.
//!
//! Invariant: nothing here depends on architectures, files or text, and nothing here has `unsafe`.
//! `Cpu` computes; `reference` is the specification of the operations.

mod adapters;
mod batch;
mod cache_spec;
mod cpu;
mod device;
mod handles;
mod heat;
mod memory;
mod read_times;
mod reference;
mod routes;

pub use adapters::{AdaptedRows, Adapter, AdapterSet, LowRank, ScaledAdapter};
pub use batch::{Batch, BlockCopy, SequenceRows, StateRows, StateSave};
pub use cache_spec::{CacheSpec, GroupSize};
pub use cpu::{Cpu, InputSums};
pub use device::{CPU, Device, DeviceChoice, DeviceInfo, DeviceOptions, Held, REFERENCE};
pub use handles::{
    AttentionSpec, Buffer, Bytes, Compression, Experts, ExpertsSpec, Gate, GroupRank, Groups,
    Growth, HeadColumns, HyperSpec, IndexSpec, KvType, LongRows, Magnitude, Matrix, MatrixSpec,
    MemoryPolicy, Mode, PackedMatrix, Pairs, RecurrenceRule, RecurrenceSpec, RmsNorm, Rope,
    Routing, RowAttention, Scores, Selection, ShortConv, Storage, Table, ThreadLimits, Vector,
    Window,
};
pub use heat::Heat;
pub use kernels::kv::{LayerCache, Rounding, RowLayout, Rows, State, group_windows};
pub use memory::{FreeMemory, Memory, SlotClass, StreamPlan, StreamStats, available_memory};
pub use read_times::ReadTimes;
pub use routes::{ExpertBytes, ExpertUse};

use base::Profile;
use kernels::quant::QuantType;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Why a backend refuses weights, memory or settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Weights of a storage type without kernels.
    #[error("weights of type {0} cannot be computed with yet")]
    UnsupportedType(String),
    /// A row of weights that is not whole quant blocks.
    #[error("rows of {cols} values are not whole blocks of type {ty} ({block} values)")]
    PartialBlock {
        /// Values in a row.
        cols: usize,
        /// Type of the weights.
        ty: String,
        /// Values in a quant block.
        block: usize,
    },
    /// A table with columns in another order than the inputs.
    #[error("weights with columns in another order than the inputs cannot be computed with yet")]
    Order,
    /// Weights that shall stay in their file, but are computed from others.
    #[error("expected weights of a file, to be {0}, found weights computed from others")]
    Computed(&'static str),
    /// Weights that shall be read when they are needed, but are in no file as they are used.
    #[error(
        "expected weights that a file holds as they are used, found weights computed from others"
    )]
    NotInFile,
    /// The system refuses to lock weights in memory.
    #[error(
        "cannot lock {bytes} bytes in memory beside {before} that are locked: {source} \
         (the limit is `ulimit -l` in KiB, or LimitMEMLOCK= of a service)"
    )]
    Lock {
        /// Bytes of these weights.
        bytes: usize,
        /// Bytes of other weights that are locked.
        before: usize,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file that weights are read from cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Weights that cannot be read when rows need them.
    #[error("cannot read weights: {source}")]
    Weights {
        /// Rows of the batch that need weights that cannot be read. The others are what they should
        /// be.
        rows: Vec<u32>,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The memory for streamed weights is too small.
    #[error(
        "expected at least {needed} bytes of memory for two streamed layers and the experts that \
         one token chooses in a layer, found {found}"
    )]
    WeightsMemory {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        found: usize,
    },
    /// Experts that differ in shape or type, or do not fit their router.
    #[error("{0}")]
    Experts(String),
    /// A device that is not there, or a setting that it does not have.
    #[error("{0}")]
    Device(String),
    /// The device failed, or is gone.
    #[error("{0}")]
    Lost(String),
    /// A head size outside what the attention kernel takes.
    #[error("expected heads of at most {max} values, found {0}", max = kernels::kv::MAX_HEAD_DIM)]
    HeadSize(usize),
    /// The KV cache does not fit into memory.
    #[error("a KV cache of {0} bytes does not fit into memory")]
    CacheTooLarge(u128),
    /// The environment names an instruction set that this CPU lacks.
    #[error("{0}")]
    Isa(String),
    /// Not enough memory for workspace or cache.
    #[error(transparent)]
    Memory(#[from] base::OutOfMemory),
    /// The system refuses to start threads.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The system refuses to pin threads.
    #[error("cannot pin threads to CPUs: {0}")]
    Pin(std::io::Error),
    /// The system does not describe NUMA nodes, or refuses to bind threads to them.
    #[error("cannot bind threads to NUMA nodes: {0}")]
    Nodes(std::io::Error),
}

/// The end of a device that is asked for bytes of blocks, although it has said that it gives none.
fn unimplemented_blocks(device: &Device) -> ! {
    panic!("device {} neither reads nor writes blocks", device.name)
}

/// Operations on one device. Buffers are `[rows, width]` in f32; `rows` is the number of rows in
/// use, at most that of the buffers.
pub trait Backend: Send {
    /// The table entry of the device.
    fn device(&self) -> &'static Device;
    /// Name of the arithmetic of this backend: equal names stand for equal bits.
    fn identity(&self) -> String;
    /// Number of compute threads.
    fn threads(&self) -> usize;
    /// Pins the calling thread, which should only compute from now on, if the others are pinned.
    fn pin_caller(&self) {}
    /// Hands the times of operations to `profile` from now on, where the backend takes them.
    fn profile(&mut self, _profile: Option<Arc<Profile>>) {}
    /// Begins work of the caller that is no operation of the backend, for the profile.
    fn begin_other(&self, _operation: &str) {}
    /// Calls `work(index)` for every index below `count`, each once, on the threads that compute;
    /// on the calling thread where the device has none of the host's.
    fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
    /// How the backend holds a matrix `[rows, cols]` of type `ty` for products in `mode`.
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held;
    /// The mode of products with matrices that name none.
    fn mode(&self) -> Mode;
    /// Whether attention can look at later positions ([`Window::ahead`]).
    fn attends_ahead(&self) -> bool {
        true
    }
    /// Allocates a workspace `[rows, width]` of zeros.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error>;
    /// Takes an embedding table `[tokens, width]`.
    ///
    /// # Errors
    /// If its type is not supported or it cannot be held as its memory policy says.
    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error>;
    /// Takes a weight matrix `[rows, cols]` for products.
    ///
    /// # Errors
    /// As [`Backend::table`], or if there is not enough memory.
    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error>;
    /// Uses these bytes, in place, for matrices that are added from now on and held in the same
    /// layout: of equal name, number, type and shape.
    fn use_packed(&mut self, _matrices: Vec<(PackedMatrix, Storage)>) {}
    /// The matrices in packed layouts, in the order in which they were added; those of an expert
    /// follow one another: gate, if it has one, up, down.
    fn packed_matrices(&self) -> Vec<(Matrix, PackedMatrix)> {
        Vec::new()
    }
    /// The bytes of a matrix in the layout that it is held in.
    ///
    /// # Panics
    /// If the matrix is none of [`packed_matrices`](Self::packed_matrices).
    fn read_packed(&mut self, _matrix: Matrix) -> Cow<'_, [u8]> {
        panic!("device {} holds no packed matrices", self.device().name)
    }
    /// Prepares some of the weights that no product has used yet, which the first product with them
    /// would do. Returns whether there are more.
    fn prepare_weights(&mut self) -> bool {
        false
    }
    /// Whether operations since the last call took time to prepare weights, unlike later ones.
    fn take_prepared(&mut self) -> bool {
        false
    }
    /// Notes that the matrices taken since the last call are of one layer, in about the order of
    /// their use: [`MemoryPolicy::Disk`] brings them into memory together.
    fn layer_loaded(&mut self) {}
    /// Makes memory of at most `bytes` for the weights that are streamed ([`MemoryPolicy::Disk`]),
    /// which `threads` threads read. Called once, when all weights are taken.
    ///
    /// # Errors
    /// If that is too little for the experts of one token or for two layers, or the system gives
    /// none.
    fn stream_weights(&mut self, _bytes: usize, _threads: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Whether [`foresee`](Self::foresee) is of use.
    fn foresees(&self) -> bool {
        false
    }
    /// Hints that the rows of `tokens` are likely to choose the experts that these logits of their
    /// router choose, so that missing ones can be read before.
    fn foresee(&mut self, _logits: Buffer, _experts: Experts, _tokens: &[u32]) {}
    /// Hints that [`mix_experts`](Self::mix_experts) follows with these logits, so that missing
    /// experts can be read while something else is computed.
    fn request_experts(&mut self, _logits: Buffer, _experts: Experts, _tokens: &[u32]) {}
    /// The memory for streamed weights; `None` where there are none.
    fn stream_plan(&self) -> Option<StreamPlan> {
        None
    }
    /// What has happened to streamed weights; `None` where there are none.
    fn stream_stats(&self) -> Option<StreamStats> {
        None
    }
    /// Starts to read the streamed experts that tokens choose most into memory that is empty.
    /// `shares` are `[layers with experts][experts]`, each the share of tokens that choose it.
    fn preload_experts(&mut self, _shares: &[Vec<f32>]) {}
    /// Bytes of an expert of each layer that has experts; empty where the device does not tell.
    fn expert_bytes(&self) -> Vec<ExpertBytes> {
        Vec::new()
    }
    /// Records from now on which experts rows choose. Returns whether the device can.
    fn record_routes(&mut self) -> bool {
        false
    }
    /// Appends what rows have chosen in the step that has ended to `out`, by layers.
    fn take_routes(&mut self, _out: &mut Vec<ExpertUse>) {}
    /// Takes a weight vector `[values]`, such as a norm or a bias.
    fn vector(&mut self, values: Vec<f32>) -> Vector;
    /// Takes the experts of a layer, made of matrices that the backend holds already.
    ///
    /// # Errors
    /// If the experts differ in shape or type, or do not fit their router.
    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error>;
    /// Takes the `frequencies` `[pairs]` of a rotary embedding and the factor `magnitude` of its
    /// cosines and sines, and allocates the angles `[rows, pairs]`.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error>;
    /// Allocates the cache: zeroed blocks for the rows of all layers, and state slots.
    ///
    /// # Errors
    /// If a head is too large, a storage type does not fit, or there is not enough memory.
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error>;
    /// Bytes of a block of `block` positions of `rows`, held in `ty` where they have no type of
    /// their own.
    fn block_bytes(&self, rows: &Rows, block: usize, ty: KvType) -> usize {
        rows.block_bytes(block, ty)
    }
    /// Bytes of a slot for `state`.
    fn state_bytes(&self, state: &State) -> usize {
        state.bytes()
    }
    /// The memory that is left; `None` if the system does not tell.
    fn free_memory(&self) -> Option<FreeMemory> {
        FreeMemory::of_this_machine(self.memory())
    }
    /// Touches the memory of `blocks` of a group of rows, so that the system provides it before it
    /// is written.
    fn touch_cache(&mut self, _group: usize, _blocks: Range<usize>) {}
    /// Begins the step that computes `batch`. Operations that take a batch are given this one until
    /// the next step begins.
    fn begin(&mut self, _batch: &Batch) {}
    /// Ends the step.
    ///
    /// # Errors
    /// If the device failed since the last step ended: what was read since is undefined, and so are
    /// the weights and the cache.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Copies blocks in all layers, one after the other.
    fn copy_blocks(&mut self, copies: &[BlockCopy]);
    /// What this machine, not the program, contributes to bits: equal values on machines whose
    /// blocks and states are the same.
    fn fingerprint(&self) -> Vec<f32> {
        Vec::new()
    }
    /// Whether blocks and states can be read and written between steps.
    fn stores_blocks(&self) -> bool {
        false
    }
    /// Copies the bytes of a block of a group, layer by layer, to `out`. They mean the same to
    /// every backend of this identity.
    ///
    /// # Panics
    /// If blocks cannot be read, or the length is wrong.
    fn read_block(&self, _group: usize, _block: u32, _out: &mut [u8]) {
        unimplemented_blocks(self.device())
    }
    /// Sets the bytes of a block of a group to `bytes`, which [`read_block`](Self::read_block)
    /// gave.
    ///
    /// # Panics
    /// If blocks cannot be written, or the length is wrong.
    fn write_block(&mut self, _group: usize, _block: u32, _bytes: &[u8]) {
        unimplemented_blocks(self.device())
    }
    /// Copies the bytes of the state in a slot, layer by layer, to `out`, without guessed rows that
    /// wait.
    ///
    /// # Panics
    /// If states cannot be read, or the length is wrong.
    fn read_state(&self, _slot: u32, _out: &mut [u8]) {
        unimplemented_blocks(self.device())
    }
    /// Sets the state in a slot to `bytes`, which [`read_state`](Self::read_state) gave.
    ///
    /// # Panics
    /// If states cannot be written, or the length is wrong.
    fn write_state(&mut self, _slot: u32, _bytes: &[u8]) {
        unimplemented_blocks(self.device())
    }
    /// Copies the states of all layers, one pair of slots (from, to) after the other.
    fn copy_states(&mut self, copies: &[(u32, u32)]);

    /// `out[i] = table[tokens[i]]`; `out` is `[tokens, width]`.
    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer);
    /// `out = rms_norm(x) * weight` for each unit of values, with the weights of each unit in turn;
    /// `x` and `out` are `[rows, units * norm.unit]`.
    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize);
    /// `out = x - mean(x)` for each row; `x` and `out` are `[rows, width]`.
    fn center(&mut self, x: Buffer, out: Buffer, rows: usize);
    /// `x = f(x, 1)` with the function of a gate; `x` is `[rows, width]`.
    fn activate(&mut self, kind: Gate, x: Buffer, rows: usize);
    /// `out = x * weight^T` for each weight `[outputs, inputs]` and `out` `[rows, outputs]`; `x` is
    /// `[rows, inputs]` and is rounded once for all.
    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize);
    /// Whether [`add_low_rank`](Self::add_low_rank) is there.
    fn takes_adapters(&self) -> bool {
        false
    }
    /// `out += scale * (x a^T) b^T` for each projection, named by its number, with its `out`
    /// `[rows, outputs]`, for the rows in `adapted`, ascending: with the factors that each of
    /// their adapters has for it, one adapter after the other. `x` is `[rows, inputs]` and is not
    /// rounded.
    fn add_low_rank(&mut self, _x: Buffer, _outputs: &[(usize, Buffer)], _adapted: &[AdaptedRows]) {
        panic!("device {} computes no adapters", self.device().name)
    }
    /// `out[h] = x[h] * weights[h]^T` for the columns of each head `h`: `x[h]` is `[rows, inputs]`,
    /// `weights[h]` `[outputs, inputs]`, `out[h]` `[rows, outputs]`.
    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize);
    /// Copies the first `width` columns of each head of `x` to those of `out`, `[rows, width]`
    /// each.
    fn copy_heads(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize);
    /// `x += bias` for each row of `x` `[rows, bias.len()]`.
    fn add_bias(&mut self, x: Buffer, bias: Vector, rows: usize);
    /// Computes the angles of `positions`, one row each, `[positions, pairs]`; of rows in `long`
    /// with the frequencies of `long_rope`, which has as many.
    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>);
    /// Rotates the first `2 * pairs` columns of each head in each row by the angles of the row.
    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize);
    /// As [`rotate`](Backend::rotate), by the negated angles.
    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize);
    /// Stores the batch's `keys` and `values`, `[rows, KV heads * head]` each, in the cache of
    /// `layer`; only keys where values are part of them.
    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch);
    /// Attention of the batch's queries `q` `[rows, heads * key]` over the positions of each row's
    /// own sequence; `out` is `[rows, heads * value]`.
    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    );
    /// Rounds each head of `x`, `width` columns, as plain rows of the cache are.
    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize);
    /// Stores `x`, `[rows, dim]`, as rows `which` of `layer`: plain rows, one for each position.
    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, batch: &Batch);
    /// Computes and stores the compressed rows of `layer` that the positions of the batch complete
    /// (DeepSeek V4): per channel a softmax over the gates of the positions, then a norm, a
    /// rotation by the row's first position, and rounding.
    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch);
    /// Makes space for the choice of up to `top` rows for each of `rows` rows.
    ///
    /// # Errors
    ///
    /// If the memory is not available.
    fn selection(&mut self, rows: usize, top: usize) -> Result<Selection, Error>;
    /// Chooses the compressed rows that each row of the batch attends to: the best of those
    /// completed up to its position by `sum of weights[h] * max(0, q[h] * row)`, ties to the
    /// earlier row. `q` is `[rows, heads * dim]`, `weights` `[rows, heads]`.
    fn select_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    );
    /// Attention of the batch's queries `q`, `[rows, heads * dim]`, over plain rows that are keys
    /// and values of all heads: rows without a window, all or the selected, and rows of the window;
    /// `out` is `[rows, heads * dim]`.
    fn attend_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    );
    /// Copies each row of `x`, `[rows, hidden]`, into every stream of `out`, `[rows, streams *
    /// hidden]`.
    fn spread_streams(&mut self, x: Buffer, out: Buffer, rows: usize);
    /// Turns products `z`, `[rows, (2 + n) * n]` for `n` streams, into factors: of the streams that
    /// are read, of what is written, and of the streams that remain (hyper-connections with
    /// Sinkhorn's normalisation). With [`HyperSpec::head`], `[rows, n]` into the factors of the
    /// streams that are read.
    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize);
    /// `out = sum of factors[s] * x[s]` over the streams of `x`.
    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize);
    /// `x[d] = post[d] * y + sum of C[s][d] * x[s]`, with the factors of
    /// [`stream_factors`](Backend::stream_factors).
    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize);
    /// Stores the rows of `x`, `[rows, channels]`, as rows `which` of `layer`, and computes
    /// `out[t] = sum of weight[j] * x[t - kernel + 1 + j]` for each channel, or the silu of that.
    /// Changes `x`.
    fn short_conv(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    );
    /// Takes the rows of the batch through the recurrence of `layer`, saves states behind the rows
    /// that the batch names, and computes guessed rows without changing the state. Changes the
    /// inputs.
    fn recur(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch);
    /// `gate = f(gate, up)`, elementwise, both `[rows, width]`.
    fn apply_gate(&mut self, kind: Gate, gate: Buffer, up: Buffer, rows: usize);
    /// `x[i] = x[i] * sigmoid(gate[i])`; `x` is `[rows, width]`, `gate` `[rows, 1]`.
    fn scale_by_sigmoid(&mut self, x: Buffer, gate: Buffer, rows: usize);
    /// `x = x * factor`; `x` is `[rows, width]`.
    fn scale(&mut self, x: Buffer, factor: f32, rows: usize);
    /// `x = cap * tanh(x / cap)`; `x` is `[rows, width]`.
    fn soft_cap(&mut self, x: Buffer, cap: f32, rows: usize);
    /// `out[i] = 0 + w1 * e1(x[i]) + w2 * e2(x[i]) ...` for the experts that the router's `logits`
    /// `[rows, experts]` choose, in ascending order of their numbers; `x` and `out` are
    /// `[rows, hidden]`. Chosen experts that are held elsewhere contribute nothing here. `tokens`
    /// are the ids of the rows, by which experts may be chosen instead.
    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    );
    /// `x += y`, both `[rows, width]`.
    fn add(&mut self, x: Buffer, y: Buffer, rows: usize);
    /// `out[i] = x[rows[i]]`; `out` is `[rows.len(), width]`.
    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer);
    /// Brings the first rows of a buffer to host memory, where [`Backend::read`] finds them.
    fn fetch(&mut self, _x: Buffer, _rows: usize) {}
    /// The first rows of a buffer, `[rows, width]`, as the last [`Backend::fetch`] left them.
    fn read(&self, x: Buffer, rows: usize) -> &[f32];
    /// Changes the first rows of a buffer, `[rows, width]`, in host memory, as by sums over ranks.
    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32]));
    /// The first of the first `rows` rows that holds NaN or infinities.
    fn first_not_finite(&mut self, x: Buffer, rows: usize) -> Option<usize> {
        self.fetch(x, rows);
        let values = self.read(x, rows);
        let at = values.iter().position(|value| !value.is_finite())?;
        Some(at / (values.len() / rows))
    }
    /// The sums over the inputs of products since the last call; the first call starts to sum and
    /// returns none. `None` if the backend cannot sum its inputs.
    fn input_sums(&mut self) -> Option<Vec<InputSums>> {
        None
    }
    /// Bytes of weights, workspace and KV cache.
    fn memory(&self) -> Memory;
}
