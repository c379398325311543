//! The sum over the heads of a query.

use crate::lanes::{LANES, Lanes};

/// Channels whose products are added before they are added to others.
pub(super) const BLOCK: usize = 32;

/// Adds the heads of `G` groups to the sums of a row.
#[inline(always)]
pub(super) fn add_heads<L: Lanes, const G: usize>(
    sums: &mut [f32; LANES],
    products: [L; G],
    weights: &[[f32; LANES]],
) {
    let mut sum = L::load(sums);
    for (product, weights) in products.into_iter().zip(weights) {
        sum = L::load(weights).mul_add(product.max(L::splat(0.0)), sum);
    }
    sum.store(sums);
}
