//! Handles and descriptions that models pass to a backend.

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
    /// What it is called, for those who ask about it; empty where nobody shall.
    pub name: String,
    /// How values are stored.
    pub ty: &'static QuantType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// `ty.bytes_for(rows * cols)` bytes, row-major.
    pub bytes: Storage,
    /// For each column as stored the input it belongs to, where that is not the same number: a
    /// permutation of the inputs.
    pub order: Option<Arc<[u32]>>,
    /// How it is multiplied, where not as the backend multiplies everything.
    pub mode: Option<Mode>,
    /// Where its bytes are held.
    pub memory: MemoryPolicy,
    /// How many threads compute with it.
    pub threads: ThreadLimits,
}

impl MatrixSpec {
    /// A matrix of shape `[rows, cols]`, its columns in the order of the inputs, held and multiplied
    /// as the backend does with all.
    pub fn new(
        name: String,
        ty: &'static QuantType,
        [rows, cols]: [usize; 2],
        bytes: Storage,
    ) -> Self {
        let (order, mode, memory, threads) = Default::default();
        Self { name, ty, rows, cols, bytes, order, mode, memory, threads }
    }
}

/// Where the bytes of a matrix are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// As it suits the mode: packed where there is a layout for it, else as they are.
    #[default]
    Auto,
    /// As they are, in the mapped file; never packed.
    Mapped,
    /// As `Mapped`, and kept in memory.
    Locked,
    /// As `Mapped`, and read when they are needed, not before.
    Disk,
}

/// Most threads that compute products with a matrix; none for all. They never change bits.
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

    /// The limit of a product of so many rows.
    pub fn of(self, rows: usize) -> Option<usize> {
        if rows <= Self::DECODE_ROWS { self.decode } else { self.prefill }
    }
}

/// The routed experts of a layer that are held here, consecutive ones: MLPs
/// `down(gate(x) applied to up(x))`, all of one shape.
#[derive(Clone, Debug)]
pub struct ExpertsSpec {
    /// Number of the first that is held here.
    pub first: usize,
    /// Experts that the router chooses among, wherever they are held.
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
    /// Added to the router's scores for the choice, a value for each of `count` experts.
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
    /// Bytes, with a scale for each 32, where the weights are quantised; BF16 where the weights
    /// are BF16 and the CPU multiplies them so; f32 elsewhere.
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

    /// The storage type of the KV cache where the user names none.
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

/// What one layer stores in the KV cache for each position: a key and a value per KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerCache {
    /// KV heads.
    pub heads: usize,
    /// Values of a key.
    pub dim: usize,
    /// With latent attention the values are the first so many of the key, and only keys are
    /// stored; `None` where values are as many again.
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

/// How one layer attends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Positions a query sees, itself included, or `None` for all before it.
    pub window: Option<usize>,
    /// A score for each head of a place without a value (attention sinks).
    pub sinks: Option<Vector>,
}
