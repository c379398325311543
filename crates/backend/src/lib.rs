//! The device seam: where weights, workspace and KV cache live, and the coarse operations a
//! model calls on them.
//!
//! A model holds small handles ([`Matrix`], [`Vector`], [`Buffer`], [`Rope`]); a [`Backend`] owns
//! what they name. Operations take the number of rows in use, so that a workspace made once
//! serves every batch without allocation.
//!
//! Invariant: nothing here knows architectures, files or text. `cpu` is the only implementation
//! so far; it has no `unsafe`.

mod batch;
mod cpu;
mod handles;

pub use batch::{Batch, SequenceRows};
pub use cpu::{Cpu, InputSums};
pub use handles::{
    AttentionSpec, Buffer, Bytes, Experts, ExpertsSpec, Gate, GroupRank, Groups, HeadColumns,
    KvType, LayerCache, Matrix, MatrixSpec, MemoryPolicy, Mode, Pairs, Rope, Routing, Scores,
    Storage, Table, ThreadLimits, Vector,
};

/// What a backend cannot do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Weights of a type without kernels.
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
    /// Columns in another order than the inputs.
    #[error("weights with columns in another order than the inputs cannot be computed with yet")]
    Order,
    /// Weights that are to be held as the file has them, and are not there as they are used.
    #[error("expected weights as a file holds them, to be {0}, found some computed from others")]
    Computed(&'static str),
    /// The system does not keep weights in memory.
    #[error(
        "cannot lock {bytes} bytes in memory beside {before} that are locked: {source} \
         (`ulimit -l` in KiB, or LimitMEMLOCK= of a service, says how many may be)"
    )]
    Lock {
        /// Bytes of these weights.
        bytes: usize,
        /// Bytes of others before.
        before: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// Experts that do not fit each other, or their router.
    #[error("{0}")]
    Experts(String),
    /// A head size outside what the attention kernel takes.
    #[error("heads of {0} values are not supported (at most {max})", max = kernels::kv::MAX_HEAD_DIM)]
    HeadSize(usize),
    /// The KV cache does not fit into memory.
    #[error("a KV cache of {0} bytes does not fit into memory")]
    CacheTooLarge(u128),
    /// The environment asks for an instruction set this CPU lacks.
    #[error("{0}")]
    Isa(String),
    /// No room for workspace or cache.
    #[error(transparent)]
    Memory(#[from] base::OutOfMemory),
    /// The system does not start the threads.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system does not pin the threads.
    #[error("cannot pin threads to CPUs: {0}")]
    Pin(std::io::Error),
}

/// Operations on one device. Row counts are at most what the buffers were made for.
pub trait Backend: Send {
    /// How activations are held, where a matrix does not say.
    fn mode(&self) -> Mode;
    /// A workspace of `rows` rows of `width` f32 values, zeroed.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error>;
    /// Takes an embedding table.
    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error>;
    /// Takes a weight matrix for products.
    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error>;
    /// Takes a weight vector, such as a norm or a bias.
    fn vector(&mut self, values: Vec<f32>) -> Vector;
    /// Takes the experts of a layer, whose matrices it holds already.
    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error>;
    /// Takes the frequencies of a rotary embedding, one per pair of values, and the factor of its
    /// cosines and sines, and makes room for the angles of `rows` rows.
    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: f32,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error>;
    /// Makes the KV cache: `blocks` blocks of `block` positions for each layer, zeroed.
    fn cache(
        &mut self,
        layers: &[LayerCache],
        block: usize,
        blocks: usize,
        ty: KvType,
    ) -> Result<(), Error>;
    /// Copies KV blocks, of all layers and one after the other: from, to.
    fn copy_blocks(&mut self, blocks: &[(u32, u32)]);

    /// `out[i] = table[tokens[i]]`.
    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer);
    /// RMSNorm of each unit of `weight.len()` values in each row.
    fn rms_norm(&mut self, x: Buffer, weight: Vector, eps: f32, out: Buffer, rows: usize);
    /// `out = x * weight^T`, `[rows, matrix rows]`, for each weight and output: what they have
    /// in common is done once.
    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize);
    /// A product for each head: `out[h] = x[h] * weights[h]^T`, of the columns of the heads.
    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize);
    /// Copies `width` columns of each head.
    fn copy_heads(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize);
    /// Adds `bias` to each row.
    fn add_bias(&mut self, x: Buffer, bias: Vector, rows: usize);
    /// Computes the angles of `positions`, one row each.
    fn rope_angles(&mut self, rope: Rope, positions: &[u32]);
    /// Turns every head of each row by the row's angles: as many columns of it as there are.
    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize);
    /// Stores the batch's key and value rows in `layer`'s cache; keys alone where the values are
    /// part of them.
    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch);
    /// Attention of the batch's query rows over each row's own sequence.
    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    );
    /// `gate = f(gate, up)`.
    fn apply_gate(&mut self, kind: Gate, gate: Buffer, up: Buffer, rows: usize);
    /// `x[i] = x[i] * sigmoid(gate[i])`; `gate` is one value wide.
    fn scale_by_sigmoid(&mut self, x: Buffer, gate: Buffer, rows: usize);
    /// Sends each row of `x` to the experts that its router's `logits` choose, and adds up what
    /// they give, times their weights, in the order of their numbers. Chosen experts that are held
    /// elsewhere give nothing here.
    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        rows: usize,
    );
    /// `x += y`.
    fn add(&mut self, x: Buffer, y: Buffer, rows: usize);
    /// `out[i] = x[rows[i]]`.
    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer);
    /// The first `rows` rows of a buffer, as f32.
    fn read(&self, x: Buffer, rows: usize) -> &[f32];
    /// The same to be changed, as by what other ranks have of them.
    fn values_mut(&mut self, x: Buffer, rows: usize) -> &mut [f32];
    /// The first of the first `rows` rows that holds NaN or infinities.
    fn first_not_finite(&self, x: Buffer, rows: usize) -> Option<usize> {
        let values = self.read(x, rows);
        let at = values.iter().position(|value| !value.is_finite())?;
        Some(at / (values.len() / rows))
    }
    /// Bytes of weights, workspace and KV cache.
    fn memory(&self) -> Memory;
}

/// Bytes a backend holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights, wherever they lie (mapped files included, but for what is left on disk).
    pub weights: usize,
    /// Workspace.
    pub workspace: usize,
    /// KV cache.
    pub cache: usize,
}
