//! Factors of projections, and of queries by their positions.

use serde::Serialize;

/// Names of projections with factors of what they give, and these.
pub type Factors = Vec<(&'static str, f32)>;

/// Growth of queries: by `1 + beta * ln(1 + floor((position + offset) / every))` (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Slope.
    pub beta: f32,
    /// Positions to a step.
    pub every: usize,
    /// Added to positions.
    pub offset: usize,
}
