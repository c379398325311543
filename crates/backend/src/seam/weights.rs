//! Weights: how a device takes and holds them.

use super::input_sums::InputSums;
use crate::error::Error;
use crate::handles::{
    Buffer, Experts, ExpertsSpec, Magnitude, Matrix, MatrixSpec, Mode, PackedMatrix, Pairs, Rope,
    Storage, Table, Vector,
};
use crate::memory::{StreamPlan, StreamStats, TableStats};
use crate::routes::{ExpertBytes, ExpertUse};
use kernels::Arithmetic;
use kernels::quant::QuantType;
use std::borrow::Cow;

/// Takes weights and holds them.
pub trait Weights {
    /// The mode of products with matrices that name none.
    fn mode(&self) -> Mode;
    /// How the backend holds a matrix `[rows, cols]` of type `ty` for products in `mode`.
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held;
    /// Takes an embedding table `[tokens, width]`.
    ///
    /// # Errors
    /// If its type is not supported or it cannot be held as its memory policy says.
    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error>;
    /// Takes a weight matrix `[rows, cols]` for products.
    ///
    /// # Errors
    /// As [`table`](Self::table), or if there is not enough memory.
    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error>;
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
    /// The sums over the inputs of products since the last call; the first call starts to sum and
    /// returns none. `None` if the backend cannot sum its inputs.
    fn input_sums(&mut self) -> Option<Vec<InputSums>> {
        None
    }
    /// Matrices in packed layouts; `None` where the device has none that can be read.
    fn packed(&mut self) -> Option<&mut dyn PackedWeights> {
        None
    }
    /// Weights that are read when they are needed; `None` where all are in memory.
    fn streamed(&self) -> Option<&dyn StreamedWeights> {
        None
    }
    /// As [`streamed`](Self::streamed), to change them.
    fn streamed_mut(&mut self) -> Option<&mut dyn StreamedWeights> {
        None
    }
    /// Tables whose rows are read when they are needed; `None` where the device has none.
    fn cached_tables(&mut self) -> Option<&mut dyn CachedTables> {
        None
    }
    /// What has happened to such tables; `None` where there are none, or no rows are kept.
    fn table_stats(&self) -> Option<TableStats> {
        None
    }
    /// A record of the experts that rows choose; `None` where the device keeps none.
    fn routes(&mut self) -> Option<&mut dyn RecordedRoutes> {
        None
    }
}

/// Matrices in layouts of the kernels, packed from those of the file.
pub trait PackedWeights {
    /// Uses these bytes, in place, for matrices that are added from now on and held in the same
    /// layout: of equal name, number, type and shape.
    fn use_packed(&mut self, matrices: Vec<(PackedMatrix, Storage)>);
    /// The matrices in packed layouts, in the order in which they were added; those of an expert
    /// follow one another: gate, if it has one, up, down.
    fn packed_matrices(&self) -> Vec<(Matrix, PackedMatrix)>;
    /// The bytes of a matrix in the layout that it is held in.
    ///
    /// # Panics
    /// If the matrix is none of [`packed_matrices`](Self::packed_matrices).
    fn read_packed(&mut self, matrix: Matrix) -> Cow<'_, [u8]>;
    /// Prepares some of the weights that no product has used yet, which the first product with them
    /// would do. Returns whether there are more.
    fn prepare_weights(&mut self) -> bool;
    /// Whether operations since the last call took time to prepare weights, unlike later ones.
    fn take_prepared(&mut self) -> bool;
}

/// Weights that are read from disk when rows need them
/// ([`MemoryPolicy::Disk`](crate::MemoryPolicy::Disk)).
pub trait StreamedWeights {
    /// Notes that the matrices taken since the last call are of one layer, in about the order of
    /// their use: streamed ones are brought into memory together.
    fn layer_loaded(&mut self);
    /// Makes memory of at most `bytes` for the weights that are streamed, which
    /// `threads` threads read. Called once, when all weights are taken.
    ///
    /// # Errors
    /// If that is too little for the experts of one token or for two layers, or the system gives
    /// none.
    fn stream_weights(&mut self, bytes: usize, threads: usize) -> Result<(), Error>;
    /// Whether [`foresee`](Self::foresee) is of use.
    fn foresees(&self) -> bool;
    /// Hints that the rows of `tokens` are likely to choose the experts that these logits of their
    /// router choose, so that missing ones can be read before.
    fn foresee(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]);
    /// Hints that [`mix_experts`](crate::Operations::mix_experts) follows with these logits, so
    /// that missing experts can be read while something else is computed.
    fn request_experts(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]);
    /// The memory for streamed weights; `None` where there are none.
    fn stream_plan(&self) -> Option<StreamPlan>;
    /// What has happened to streamed weights; `None` where there are none.
    fn stream_stats(&self) -> Option<StreamStats>;
    /// Starts to read the streamed experts that tokens choose most into memory that is empty.
    /// `shares` are `[layers with experts][experts]`, each the share of tokens that choose it.
    fn preload_experts(&mut self, shares: &[Vec<f32>]);
    /// Bytes of an expert of each layer that has experts; empty where the device does not tell.
    fn expert_bytes(&self) -> Vec<ExpertBytes>;
}

/// Tables whose rows stay on disk ([`MemoryPolicy::Rows`](crate::MemoryPolicy::Rows)).
pub trait CachedTables {
    /// Makes memory of at most `bytes` for rows that are used often. Called when all tables are
    /// taken.
    ///
    /// # Errors
    /// If the system gives none.
    fn table_memory(&mut self, bytes: usize) -> Result<(), Error>;
    /// Hints that [`embed`](crate::Operations::embed) follows with these rows of a table, so that
    /// they can be read while something else is computed.
    fn foresee_rows(&mut self, table: Table, rows: &[u32]);
}

/// Which experts the rows of each step choose.
pub trait RecordedRoutes {
    /// Records them from now on.
    fn record_routes(&mut self);
    /// Appends what rows have chosen in the step that has ended to `out`, by layers.
    fn take_routes(&mut self, out: &mut Vec<ExpertUse>);
}

/// How a backend holds a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the layout.
    pub layout: &'static str,
    /// Bytes of the copy in this layout; `None` if the bytes of the file are used as they are.
    pub bytes: Option<usize>,
    /// What decides the bits of its products; `None` where the device's name says it.
    pub arithmetic: Option<Arithmetic>,
}
