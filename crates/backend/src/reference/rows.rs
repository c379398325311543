//! Rows of f32 values, and the arithmetic on them.

/// A row-major array of f32 values.
pub(super) struct Rows {
    /// Values of a row.
    pub(super) width: usize,
    /// `[rows, width]`.
    pub(super) values: Vec<f32>,
}

impl Rows {
    pub(super) fn zeroed(rows: usize, width: usize) -> Self {
        Self { width, values: vec![0.0; rows * width] }
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..][..self.width]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..][..self.width]
    }
}

/// `x += factor * y`.
pub(super) fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
