//! Outputs of low-rank factors (LoRA; Hu et al., 2021).
//!
//! One order for every output element: the products of its values in ascending rank, added to one
//! f32 sum by fused multiply-adds; the sum, times a factor, is added to the output, fused.

use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};

/// Groups of outputs whose sums are computed together: as many as hide the latency of an addition.
const GROUPS: usize = 4;

/// The second factor of a pair, `[outputs, rank]`, in groups of sixteen outputs: for each rank the
/// values of all outputs of a group side by side. Missing outputs of the last group are zeros.
#[derive(Clone, Copy, Debug)]
pub enum Factor<'a> {
    /// Values in f32.
    F32(&'a [f32]),
    /// The upper 16 bits of values whose others are zero.
    Bf16(&'a [u16]),
}

/// Arranges `[outputs, rank]` as [`Factor`] says.
pub fn arrange<T: Copy + Default>(b: &[T], rank: usize) -> Vec<T> {
    assert!(rank > 0 && b.len().is_multiple_of(rank), "whole rows");
    let mut to = Vec::with_capacity(b.len().next_multiple_of(LANES * rank));
    for group in b.chunks(LANES * rank) {
        for at in 0..rank {
            let values = (0..LANES).map(|row| group.get(row * rank + at).copied());
            to.extend(values.map(Option::unwrap_or_default));
        }
    }
    to
}

isa_dispatch! {
    /// `out[o] += scale * sum of b[o, r] * x[r]` for the outputs of `out`, the first of which is
    /// the first of a group of `b`. The rank is the length of `x`.
    ///
    /// # Panics
    /// If `b` has not exactly the groups of the outputs.
    pub fn add_product(b: Factor<'_>, x: &[f32], scale: f32, out: &mut [f32]) = add_product_body
}

#[inline(always)]
fn add_product_body<L: Lanes>(b: Factor<'_>, x: &[f32], scale: f32, out: &mut [f32]) {
    match b {
        Factor::F32(b) => each_group::<L, f32>(b, x, scale, out),
        Factor::Bf16(b) => each_group::<L, u16>(b, x, scale, out),
    }
}

/// A value of a factor.
trait FactorValue: Sized {
    /// Sixteen values as f32, exactly.
    fn lanes<L: Lanes>(values: &[Self; LANES]) -> L;
}

impl FactorValue for f32 {
    #[inline(always)]
    fn lanes<L: Lanes>(values: &[f32; LANES]) -> L {
        L::load(values)
    }
}

impl FactorValue for u16 {
    #[inline(always)]
    fn lanes<L: Lanes>(values: &[u16; LANES]) -> L {
        L::load_bf16(values)
    }
}

#[inline(always)]
fn each_group<L: Lanes, E: FactorValue>(b: &[E], x: &[f32], scale: f32, out: &mut [f32]) {
    let rank = x.len();
    let (b, rest) = b.as_chunks::<LANES>();
    assert!(rest.is_empty() && b.len() == out.len().div_ceil(LANES) * rank, "groups of outputs");
    let mut groups = b.chunks_exact((GROUPS * rank).max(1));
    let mut outputs = out.chunks_mut(GROUPS * LANES);
    for group in groups.by_ref() {
        let out = outputs.next().expect("outputs of the groups");
        some_groups::<L, E, GROUPS>(group, x, scale, out);
    }
    let left = outputs.next().unwrap_or_default();
    let last = groups.remainder().chunks_exact(rank.max(1));
    for (group, out) in last.zip(left.chunks_mut(LANES)) {
        some_groups::<L, E, 1>(group, x, scale, out);
    }
}

/// The outputs of `N` groups.
#[inline(always)]
fn some_groups<L: Lanes, E: FactorValue, const N: usize>(
    b: &[[E; LANES]],
    x: &[f32],
    scale: f32,
    out: &mut [f32],
) {
    let rank = x.len();
    let mut sums = [L::splat(0.0); N];
    for (at, x) in x.iter().enumerate() {
        let x = L::splat(*x);
        for (group, sum) in sums.iter_mut().enumerate() {
            *sum = E::lanes::<L>(&b[group * rank + at]).mul_add(x, *sum);
        }
    }
    let scale = L::splat(scale);
    for (sum, out) in sums.into_iter().zip(out.chunks_mut(LANES)) {
        let mut values = [0.0; LANES];
        sum.mul_add(scale, load_partial::<L>(out, 0.0)).store(&mut values);
        out.copy_from_slice(&values[..out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use proptest::prelude::*;

    fn cases() -> impl Strategy<Value = (usize, Vec<f32>, Vec<f32>, Vec<f32>)> {
        (1usize..20, 1usize..150).prop_flat_map(|(rank, outputs)| {
            let values = |count| prop::collection::vec(-2.0f32..2.0, count);
            (Just(rank), values(rank), values(rank * outputs), values(outputs))
        })
    }

    proptest! {
        #[test]
        fn products_are_added_as_they_are_defined((rank, x, b, base) in cases()) {
            let scale = 1.5f32;
            let bits: Vec<u16> = b.iter().map(|value| (value.to_bits() >> 16) as u16).collect();
            let cut = bits.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect();
            let (whole, halves) = (arrange(&b, rank), arrange(&bits, rank));
            for (factor, b) in [(Factor::F32(&whole), b), (Factor::Bf16(&halves), cut)] {
                let mut first: Option<Vec<u32>> = None;
                for isa in Isa::available() {
                    let mut out = base.clone();
                    add_product(isa, factor, &x, scale, &mut out);
                    for ((row, base), out) in b.chunks(rank).zip(&base).zip(&out) {
                        let products = row.iter().zip(&x).map(|(b, x)| f64::from(b * x));
                        let expected = f64::from(*base) + f64::from(scale) * products.sum::<f64>();
                        prop_assert!((f64::from(*out) - expected).abs() < 1e-4, "{isa:?}");
                    }
                    let bits: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
                    let first = first.get_or_insert_with(|| bits.clone());
                    prop_assert!(*first == bits, "{isa:?} gives other bits");
                }
            }
        }

        #[test]
        fn outputs_have_the_same_bits_alone_as_among_others((rank, x, b, base) in cases()) {
            let groups = arrange(&b, rank);
            for isa in Isa::available() {
                let mut together = base.clone();
                add_product(isa, Factor::F32(&groups), &x, 0.5, &mut together);
                let mut apart = base.clone();
                let parts = groups.chunks(LANES * rank).zip(apart.chunks_mut(LANES));
                parts.for_each(|(b, out)| add_product(isa, Factor::F32(b), &x, 0.5, out));
                prop_assert!(together == apart, "{isa:?}");
            }
        }
    }
}
