//! Comparison of numbers in tests.

/// Checks that a number is the expected one, up to rounding.
pub(super) fn is_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
}
