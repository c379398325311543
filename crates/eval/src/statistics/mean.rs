//! The mean of numbers.

/// The mean of numbers, 0 of none.
pub(super) fn mean(numbers: &[f64]) -> f64 {
    if numbers.is_empty() { 0.0 } else { numbers.iter().sum::<f64>() / numbers.len() as f64 }
}
