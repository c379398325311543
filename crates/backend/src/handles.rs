//! Handles and descriptions that models pass to a backend.

use crate::Error;
pub use base::{Bytes, Storage};
pub use kernels::elementwise::Gate;
use kernels::kv::KvLayout;
pub use kernels::kv::KvType;
use kernels::quant::QuantType;
pub use kernels::rope::Pairs;
pub use kernels::routing::{GroupRank, Groups, Routing, Scores};
use std::sync::Arc;

/// A workspace made by [`Backend::buffer`](crate::Backend::buffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(pub(crate) usize);

/// A weight matrix held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix(pub(crate) usize);

/// The routed experts of a layer, held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts(pub(crate) usize);

/// An embedding table held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(pub(crate) usize);

/// A weight vector held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector(pub(crate) usize);

/// A rotary embedding held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope(pub(crate) usize);

/// A weight matrix as a checkpoint stores it.
#[derive(Clone)]
pub struct MatrixSpec {
    /// Name of the tensor, for the sums over its inputs; empty for none.
    pub name: String,
    /// How values are stored.
    pub ty: &'static QuantType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// `ty.bytes_for(rows * cols)` bytes, row-major.
    pub bytes: Storage,
    /// The input of each stored column, where they are in another order: a permutation of the
    /// inputs.
    pub order: Option<Arc<[u32]>>,
    /// Mode of its products; that of the backend if `None`.
    pub mode: Option<Mode>,
    /// Where its bytes are held.
    pub memory: MemoryPolicy,
    /// Limits of the threads that compute its products.
    pub threads: ThreadLimits,
}

impl MatrixSpec {
    /// A matrix `[rows, cols]` with columns in the order of the inputs and the backend's defaults.
    pub fn new(
        name: String,
        ty: &'static QuantType,
        [rows, cols]: [usize; 2],
        bytes: Storage,
    ) -> Self {
        let (order, mode, memory, threads) = Default::default();
        Self { name, ty, rows, cols, bytes, order, mode, memory, threads }
    }

    /// Bytes of a row.
    ///
    /// # Errors
    /// If the type cannot be computed with or rows are not whole quant blocks.
    pub(crate) fn row_bytes(&self) -> Result<usize, Error> {
        let (ty, cols, block) = (self.ty.name.to_owned(), self.cols, self.ty.block_len);
        if !self.ty.is_supported() {
            return Err(Error::UnsupportedType(ty));
        }
        self.ty.bytes_for(cols).ok_or(Error::PartialBlock { cols, ty, block })
    }
}

/// Where the bytes of a matrix are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// As the mode requires: packed where there is a layout, else as stored.
    #[default]
    Auto,
    /// As stored, in the mapped file; never packed.
    Mapped,
    /// As `Mapped`, and locked in memory.
    Locked,
    /// As `Mapped`, and read only when needed.
    Disk,
}

/// Most threads that compute products with a matrix, `None` for all. They never change bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadLimits {
    /// In products of many rows.
    pub prefill: Option<usize>,
    /// In products of at most [`DECODE_ROWS`](Self::DECODE_ROWS) rows.
    pub decode: Option<usize>,
}

impl ThreadLimits {
    /// Most rows of a product that counts as decode.
    pub const DECODE_ROWS: usize = 16;

    /// The limit of a product of `rows` rows.
    pub fn of(self, rows: usize) -> Option<usize> {
        if rows <= Self::DECODE_ROWS { self.decode } else { self.prefill }
    }
}

/// The consecutive routed experts of a layer that this backend holds: MLPs
/// `down(gate(x) applied to up(x))`, all of one shape.
#[derive(Clone, Debug)]
pub struct ExpertsSpec {
    /// Number of the first expert held here.
    pub first: usize,
    /// Number of experts that the router chooses among, wherever they are held.
    pub count: usize,
    /// `[width, hidden]` of each expert.
    pub gate: Vec<Matrix>,
    /// `[width, hidden]` of each expert.
    pub up: Vec<Matrix>,
    /// `[hidden, width]` of each expert.
    pub down: Vec<Matrix>,
    /// Biases of gate, up and down: `[experts held, outputs]` each.
    pub biases: Option<[Vector; 3]>,
    /// How gates are applied.
    pub kind: Gate,
    /// How experts are chosen.
    pub routing: Routing,
    /// Added to the router's scores for the choice only, `[count]`.
    pub correction: Option<Vector>,
    /// Most rows at once.
    pub rows: usize,
}

/// The columns of a buffer that belong to heads: those of head `h` begin at `first + h * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadColumns {
    /// The buffer, `[rows, width]`.
    pub buffer: Buffer,
    /// First column of the first head.
    pub first: usize,
    /// Columns from one head to the next.
    pub stride: usize,
}

/// How activations are held when they are multiplied with weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// f32: the mode in which results are compared with a reference.
    Exact,
    /// What the layout of the weights takes: bytes with a scale for each 32 where the weights are
    /// quantised, BF16 where the weights are and the CPU has BF16 products, f32 elsewhere.
    #[default]
    Fast,
}

impl Mode {
    /// `exact` or `fast`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        }
    }

    /// The default storage type of the KV cache.
    pub fn default_kv_type(self) -> KvType {
        match self {
            Self::Exact => KvType::F32,
            Self::Fast => KvType::Bf16,
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "exact" => Ok(Self::Exact),
            "fast" => Ok(Self::Fast),
            other => Err(format!("compute mode must be exact or fast, not {other:?}")),
        }
    }
}

/// Contents of the KV cache of one layer at each position: a key and a value per KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCache {
    /// KV heads.
    pub heads: usize,
    /// Values of a key.
    pub dim: usize,
    /// Size of a value that is the start of its key, as in latent attention, where only keys are
    /// stored; `None` where values are stored and as long as keys.
    pub latent: Option<usize>,
}

impl LayerCache {
    /// Bytes of a block of `block` positions.
    pub fn block_bytes(self, block: usize, ty: KvType) -> usize {
        self.layout(block, ty).block_bytes()
    }

    pub(crate) fn layout(self, block: usize, ty: KvType) -> KvLayout {
        KvLayout { ty, block, heads: self.heads, dim: self.dim, latent: self.latent }
    }
}

/// Attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Number of positions that a query attends to, its own included, or `None` for all.
    pub window: Option<usize>,
    /// Scores of attention sinks, one for each head: positions without a value.
    pub sinks: Option<Vector>,
}
