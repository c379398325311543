//! Handles and descriptions that models pass to a backend.

use crate::error::Error;
pub use base::{Bytes, Storage};
pub use kernels::attention::Window;
pub use kernels::elementwise::Gate;
pub use kernels::kv::KvType;
use kernels::quant::QuantType;
pub use kernels::rope::{Growth, Magnitude, Pairs};
pub use kernels::routing::{GroupRank, Groups, Routing, Scores};
use kernels::{Arithmetic, Isa};
use std::ops::Range;
use std::sync::Arc;

/// A workspace made by [`Operations::buffer`](crate::Operations::buffer). Like that of all
/// handles, the number is the backend's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(pub usize);

/// A weight matrix held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix(pub usize);

/// The routed experts of a layer, held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts(pub usize);

/// An embedding table held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(pub usize);

/// A weight vector held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector(pub usize);

/// A rotary embedding held by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope(pub usize);

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
    pub fn row_bytes(&self) -> Result<usize, Error> {
        let (ty, cols, block) = (self.ty.name.to_owned(), self.cols, self.ty.block_len);
        if !self.ty.is_supported() {
            return Err(Error::UnsupportedType(ty));
        }
        self.ty.bytes_for(cols).ok_or(Error::PartialBlock { cols, ty, block })
    }
}

/// A matrix in a packed layout, as a file of packed weights holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMatrix {
    /// Name of the matrix.
    pub name: String,
    /// Its number among the matrices of this name, in the order in which they are added.
    pub index: u32,
    /// Storage type that it is packed from.
    pub ty: &'static QuantType,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Name of the layout.
    pub layout: String,
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
    /// As `Auto`, on disk: the matrices of experts are read when rows choose them, the rows of
    /// tables one by one.
    Disk,
    /// On disk, for tables: rows are read one by one, and kept in memory by use
    /// ([`CachedTables`](crate::CachedTables)).
    Rows,
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
/// `down(gate(x) applied to up(x))`, or without gates `down(activation(up(x)))`, all of one shape.
#[derive(Clone, Debug)]
pub struct ExpertsSpec {
    /// Number of the first expert held here.
    pub first: usize,
    /// Number of experts that the router chooses among, wherever they are held.
    pub count: usize,
    /// `[width, hidden]` of each expert; empty where experts have no gates.
    pub gate: Vec<Matrix>,
    /// `[width, hidden]` of each expert.
    pub up: Vec<Matrix>,
    /// `[hidden, width]` of each expert.
    pub down: Vec<Matrix>,
    /// Biases of gate, up and down: `[experts held, outputs]` each. Only experts with gates have
    /// them.
    pub biases: Option<[Vector; 3]>,
    /// How gates are applied.
    pub kind: Gate,
    /// Whether the weight of a chosen expert is a factor of its inputs rather than of its outputs.
    pub weighs_inputs: bool,
    /// How experts are chosen.
    pub routing: Routing,
    /// Added to the router's scores for the choice only, `[count]`.
    pub correction: Option<Vector>,
    /// Factors of the weights of chosen experts, `[count]` (Gemma 4).
    pub scales: Option<Vector>,
    /// The experts of each token id, `[vocab, chosen]`, where they do not depend on scores.
    pub table: Option<Arc<[u32]>>,
    /// Most rows at once.
    pub rows: usize,
}

impl ExpertsSpec {
    /// Number of experts held here.
    pub fn held(&self) -> usize {
        self.up.len()
    }

    /// Whether experts have gates.
    pub fn has_gates(&self) -> bool {
        !self.gate.is_empty()
    }

    /// The matrices that multiply the inputs of experts: gates, where there are any, and ups.
    pub fn inward(&self) -> impl Iterator<Item = &[Matrix]> {
        [&self.gate[..], &self.up].into_iter().filter(|all| !all.is_empty())
    }

    /// All matrices by their kind, as [`inward`](Self::inward), then downs.
    pub fn kinds(&self) -> impl Iterator<Item = &[Matrix]> {
        self.inward().chain([&self.down[..]])
    }

    /// What is wrong with the numbers of matrices and of chosen experts, if anything is.
    pub fn broken(&self) -> Option<String> {
        let Self { first, count, gate, up, down, routing, .. } = self;
        let held = up.len();
        let gated = !self.has_gates() || gate.len() == held;
        if held == 0 || !gated || down.len() != held || first + held > *count {
            let (gate, down) = (gate.len(), down.len());
            return Some(format!(
                "expected as many gates, if any, as ups and downs of experts, at most {count}, \
                 found {gate}, {held} and {down} from number {first} on"
            ));
        }
        if !self.has_gates() && self.biases.is_some() {
            return Some("expected no biases of experts without gates".to_owned());
        }
        (!routing.fits(*count))
            .then(|| format!("a router that chooses {routing:?} does not fit {count} experts"))
    }
}

/// Rows of long sequences, which may have other rotary frequencies.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongRows<'a> {
    /// The embedding with these frequencies.
    pub rope: Option<Rope>,
    /// The rows.
    pub rows: &'a [Range<usize>],
}

impl LongRows<'_> {
    /// The embedding with the frequencies of a row, if they are others.
    pub fn of_row(&self, row: usize) -> Option<Rope> {
        self.rope.filter(|_| self.rows.iter().any(|rows| rows.contains(&row)))
    }
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

/// Which bits products may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bits {
    /// The bits of every other CPU: f32 products of BF16, F16 and FP8 weights.
    Portable,
    /// The bits of whatever is fastest here.
    #[default]
    Fastest,
}

impl Bits {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Portable, Self::Fastest];

    /// The choice that gives a model the arithmetic of this name again.
    pub fn of_arithmetic(name: &str) -> Self {
        match Arithmetic::is_portable_name(name) {
            true => Self::Portable,
            false => Self::Fastest,
        }
    }

    /// The instruction set to compute with where `isa` was chosen.
    pub fn limit(self, isa: Isa) -> Isa {
        match self {
            Self::Portable => isa.portable(),
            Self::Fastest => isa,
        }
    }

    /// `portable` or `fastest`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Fastest => "fastest",
        }
    }
}

impl std::str::FromStr for Bits {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|bits| bits.name() == name);
        known.ok_or_else(|| format!("bits must be portable or fastest, not {name:?}"))
    }
}

/// Attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// The positions that a query attends to.
    pub window: Window,
    /// Scores of attention sinks, one for each head: positions without a value.
    pub sinks: Option<Vector>,
}

/// Space for the rows that rows of a batch choose, made by
/// [`Operations::selection`](crate::Operations::selection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection(pub usize);

/// Pooling of the positions of compressed rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// Which rows of the layer hold the values of positions, f32.
    pub values: usize,
    /// Which rows hold their gates, f32, and what is added to these by position within a row:
    /// `[positions, values]`. Without them a row is the mean of its positions.
    pub gates: Option<(usize, Vector)>,
    /// Which rows are written.
    pub out: usize,
    /// Whether a row also pools the positions of the row before: these with the first half of
    /// values and gates, its own with the second.
    pub overlap: bool,
    /// Weight of the row's norm, and its epsilon, where it has one.
    pub norm: Option<(Vector, f32)>,
    /// Rotation of some values of the row, where they are rotated, and the first of these.
    pub rope: Option<(Rope, usize)>,
}

/// Consecutive rows that are one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRuns {
    /// Rows of a run.
    pub len: usize,
    /// What is attended to whatever is chosen, and not chosen among: the run with the query's own
    /// position, or otherwise the rows after the last complete run.
    pub own: bool,
}

impl RowRuns {
    /// Each row is a choice.
    pub const SINGLE: Self = Self { len: 1, own: false };

    /// Runs that are chosen among, of this number of complete rows.
    pub fn candidates(self, complete: usize) -> usize {
        complete.saturating_sub(usize::from(self.own)) / self.len
    }
}

/// Choice of compressed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Which rows of the layer are compared with the queries.
    pub rows: usize,
    /// The runs of these rows that are chosen, each by the greatest score of its rows.
    pub runs: RowRuns,
    /// Last runs of those chosen among that are chosen whatever their scores.
    pub last: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// The first position that has a row. Runs are counted from its row on; those before choose
    /// themselves alone.
    pub first: usize,
    /// Where the choice is written.
    pub selection: Selection,
}

/// Attention over plain rows of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowAttention {
    /// Query heads.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Scores of attention sinks, one for each head.
    pub sinks: Option<Vector>,
    /// Which rows of the layer are those of the window, one for each position, where it has them.
    pub window: Option<usize>,
    /// Which rows are chosen among or attended to without a window, where the layer has them.
    pub compressed: Option<usize>,
    /// The choice among these; without one, all that are complete.
    pub selection: Option<Selection>,
    /// The runs that chosen numbers stand for.
    pub runs: RowRuns,
    /// The first position that has a row, as for the choice; those before attend to themselves
    /// alone.
    pub first: usize,
}

impl RowAttention {
    /// The first of the `positions` of the window that a query at `position` attends to.
    pub fn first_seen(&self, position: usize, positions: Option<usize>) -> usize {
        let positions = positions.unwrap_or(usize::MAX);
        Window { positions, first: self.first, ..Window::ALL }.first_seen(position)
    }
}

/// Factors of hyper-connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HyperSpec {
    /// Residual streams.
    pub streams: usize,
    /// Iterations of Sinkhorn's normalisation.
    pub iterations: usize,
    /// Added to sums that divide, and to factors.
    pub eps: f32,
    /// Added to the products: `[(2 + streams) * streams]`, `[2 * streams]` for streams that stay
    /// apart, `[streams]` for the head.
    pub base: Vector,
    /// Factors of the products: `[3]`, `[2]` or `[1]`.
    pub scale: Vector,
    /// Which factors there are.
    pub kind: StreamFactors,
}

/// Factors of hyper-connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamFactors {
    /// Of the streams that are read, `sigmoid + eps`, of what is written, `2 * sigmoid`, and of the
    /// streams that remain, a matrix that is made doubly stochastic.
    All,
    /// Of the streams that are read, `sigmoid + eps`, and of what is written,
    /// `magnitude * sigmoid + eps`; each stream remains as it is: the matrix is the identity.
    Apart {
        /// Factor of what is written.
        magnitude: f32,
    },
    /// Of the streams that are read alone.
    Head,
}

/// RMSNorm of units of values (Zhang and Sennrich, 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// A weight for each value of one unit, or of several.
    pub weight: Vector,
    /// Values that are normalised together.
    pub unit: usize,
    /// Added to the mean of the squares.
    pub eps: f32,
}

/// Depthwise convolution along positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Whether the silu of what it gives is taken.
    pub silu: bool,
    /// `[kernel, channels]`.
    pub weight: Vector,
    /// `[channels]`.
    pub bias: Option<Vector>,
    /// `[rows, channels]`.
    pub out: Buffer,
}

/// How rows change a layer's [`State`](crate::State); sizes are those of the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecurrenceSpec {
    /// What is read from the state and written to it.
    pub rule: RecurrenceRule,
    /// Queries `[rows, key heads * keys]`; the delta rule normalises and scales them.
    pub q: Buffer,
    /// Keys `[rows, key heads * keys]`; the delta rule normalises them.
    pub k: Buffer,
    /// Values `[rows, heads * values]`.
    pub v: Buffer,
    /// Inputs of the decay, `[rows, heads]`, or `[rows, heads * keys]` where each key of the state
    /// has a decay of its own.
    pub a: Buffer,
    /// Added to `a`, as long as its rows.
    pub dt: Vector,
    /// Rate of the decay, negative, as long as rows of `a`: `decay = exp(rate * softplus(a + dt))`,
    /// or of one with a bound.
    pub rate: Vector,
    /// Workspace for decays, like `a`.
    pub decay: Buffer,
    /// Workspace for betas, `[rows, heads]`: `sigmoid(b)`, or the lengths of steps.
    pub beta: Buffer,
    /// Whether head `h` shares key head `h % key heads`, rather than `h / (heads / key heads)`.
    pub tiled: bool,
    /// `[rows, heads * values]`.
    pub out: Buffer,
}

/// What a recurrence reads from its state and writes to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrenceRule {
    /// The gated delta rule (Yang et al., 2024): the state is corrected towards the value.
    Delta {
        /// Inputs of beta, the share of the correction that is made: `[rows, heads]`.
        b: Buffer,
        /// Least logarithm of the decay, where it has a bound:
        /// `decay = exp(least * sigmoid(-rate * (a + dt)))`.
        least: Option<f32>,
    },
    /// A state space (Mamba-2; Dao and Gu, 2024): the value is added, times the length of the step,
    /// `softplus(a + dt)`.
    StateSpace {
        /// Share of the value that passes by the state to the output: `[heads]`.
        skip: Vector,
        /// Least and greatest length of a step.
        limits: [f32; 2],
    },
}
