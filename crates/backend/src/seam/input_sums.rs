//! Sums over the inputs of matrices.

/// Sums over the inputs of one matrix, or of all matrices of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSums {
    /// Name of the tensor.
    pub name: String,
    /// The sum of the squares of every column, one matrix after the other.
    pub squares: Vec<f64>,
    /// Rows added up, for each matrix.
    pub rows: Vec<u64>,
}
