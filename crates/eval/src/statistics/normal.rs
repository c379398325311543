//! Quantiles of the normal distribution.

/// The number of standard errors on each side of a mean within which 95 % of means are.
pub const NORMAL_95: f64 = 1.959_963_984_540_054;
/// The number of standard errors above [`NORMAL_95`] at which four of five experiments show a
/// difference: the 80 % quantile.
pub(super) const POWER_80: f64 = 0.841_621_233_572_914;
