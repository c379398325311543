//! What a checkpoint of random weights is made of.

use super::matrix_types::MatrixTypes;
use formats::ModelConfig;

/// A checkpoint to be written.
#[derive(Clone, Debug)]
pub struct SynthPlan {
    /// The shape of the model; the ids of special tokens are replaced by those of the written
    /// vocabulary.
    pub config: ModelConfig,
    /// Types of the matrices.
    pub types: MatrixTypes,
    /// Decides all weights.
    pub seed: u64,
    /// How unevenly routers choose: the norms of their rows are `1 / rank^routing_skew`, in a
    /// random order of the experts of each layer.
    pub routing_skew: f64,
}
