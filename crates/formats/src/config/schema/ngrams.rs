//! Embeddings of n-grams.

use crate::layers::NgramHash;

/// Embeddings of n-grams that one layer adds to all residual streams (Qwen3.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NgramConfig {
    /// The layer.
    pub layer: usize,
    /// How n-grams become rows. Multipliers are missing where config.json was read alone.
    pub hash: NgramHash,
    /// Rows of the table.
    pub rows: usize,
    /// Values of all rows of a token.
    pub width: usize,
    /// Positions that the convolution covers.
    pub kernel: usize,
}
