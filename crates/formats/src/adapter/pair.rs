//! One projection of an adapter.

use indexmap::IndexMap;

/// Most rows of the first factor of a pair.
pub const MAX_RANK: usize = 1024;

/// The projections of a model that an adapter may change: `[outputs, inputs]` under the canonical
/// name without `.weight`.
pub type ProjectionShapes = IndexMap<String, [usize; 2]>;

/// The factors of one projection: `scale * b * a` is added to its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterPair {
    /// Index of the projection among those of the model.
    pub projection: usize,
    /// Rows of `a` and columns of `b`.
    pub rank: usize,
    /// `[rank, inputs]`.
    pub a: Vec<f32>,
    /// `[outputs, rank]`, rows in the order of the model's.
    pub b: Vec<f32>,
    /// Factor of the product: alpha divided by the rank, or by its root (rsLoRA).
    pub scale: f32,
}
