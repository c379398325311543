//! Rotary embeddings.

use backend::{Magnitude, Pairs};

/// A rotary embedding.
pub(crate) struct Rotation {
    pub frequencies: Vec<f32>,
    pub magnitude: Magnitude,
    pub pairs: Pairs,
    /// Cosines of a row, then its sines: `[rows, 2, pairs]`.
    pub angles: crate::gpu::Words,
}
