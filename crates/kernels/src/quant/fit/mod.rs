//! Common parts of quantisers: blocks of weighted values, and searches for the scales with the
//! least error. The error of a fit is the sum over a group of `weight * (value - restored)^2`; a
//! fit proposes scales, rounds values to the nearest level under each, and keeps the best, always
//! measured with factors and scales as stored.

mod book;
mod line;
mod scale;
mod signs;
mod step;

pub(super) use book::{Book, Leveled};
pub(super) use line::{FittedLines, fit_lines, store_f16_line};
pub(super) use scale::{Levels, fit_scales, store_f16_scale};
pub(super) use signs::{Signs, Unsigned};
pub(super) use step::{Rounded, Rounding, StepGrid, fit_steps};

use super::BlockFormat;
use crate::isa::Isa;
use crate::lanes::widen::Widen;
use crate::lanes::{Kernel, run_on};
use half::f16;
use std::marker::PhantomData;

/// Larger magnitudes cannot be stored by any type with f16 factors; cutting them there keeps
/// all sums of squares finite.
const MAX_VALUE: f32 = 1e9;
/// Groups whose values are all smaller than this are zero under the smallest f16 factor.
const MIN_SCALE: f32 = 1e-12;
/// Smallest weight of a value, relative to the mean of its block: values of no importance are still
/// stored as well as the others allow.
const MIN_WEIGHT: f32 = 1e-4;

/// The values of one quant block, each with the weight of its error.
pub(super) struct WeightedBlock<const LEN: usize> {
    pub values: [f32; LEN],
    pub weights: [f32; LEN],
}

/// The part of a block that shares one scale.
#[derive(Clone, Copy)]
pub(super) struct WeightedGroup<'a, const N: usize> {
    pub values: &'a [f32; N],
    pub weights: &'a [f32; N],
}

/// Stores whole quant blocks with the instructions that the CPU has.
pub(super) fn quantize<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize>(
    src: &[f32],
    importance: Option<&[f32]>,
    dst: &mut [u8],
) {
    run_on(isa(), QuantizeBlocks::<F, LEN, BYTES> { src, importance, dst, format: PhantomData });
}

/// The instruction set to use.
pub(super) fn isa() -> Isa {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED.get() {
        return forced;
    }
    Isa::detect().unwrap_or(Isa::SCALAR)
}

struct QuantizeBlocks<'a, F, const LEN: usize, const BYTES: usize> {
    src: &'a [f32],
    importance: Option<&'a [f32]>,
    dst: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: BlockFormat<LEN, BYTES>, const LEN: usize, const BYTES: usize> Kernel
    for QuantizeBlocks<'_, F, LEN, BYTES>
{
    #[inline(always)]
    fn run<L: Widen>(self) {
        let (blocks, out) = (self.src.as_chunks::<LEN>().0, self.dst.as_chunks_mut::<BYTES>().0);
        for (index, (values, out)) in blocks.iter().zip(out).enumerate() {
            let weights = match self.importance {
                Some(all) => relative(&all[index * LEN..][..LEN]),
                None => [1.0; LEN],
            };
            out.fill(0);
            F::store(&WeightedBlock { values: values.map(bounded), weights }, out);
        }
    }
}

/// `value` clamped to what can be stored.
#[inline(always)]
fn bounded(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-MAX_VALUE, MAX_VALUE) }
}

/// Weights of mean one from importances of any size.
#[inline(always)]
pub(super) fn relative<const LEN: usize>(importance: &[f32]) -> [f32; LEN] {
    let usable = |v: f32| if v.is_finite() { v.max(0.0) } else { 0.0 };
    let most = importance.iter().fold(0.0f32, |m, &v| m.max(usable(v)));
    if most == 0.0 {
        return [1.0; LEN];
    }
    let mut weights: [f32; LEN] = std::array::from_fn(|i| usable(importance[i]) / most);
    let mean = weights.iter().sum::<f32>() / LEN as f32;
    weights.iter_mut().for_each(|w| *w = (*w / mean).max(MIN_WEIGHT));
    weights
}

impl<const LEN: usize> WeightedBlock<LEN> {
    /// The groups of `N` values, in order.
    #[inline(always)]
    pub fn groups<const N: usize>(
        &self,
    ) -> impl ExactSizeIterator<Item = WeightedGroup<'_, N>> + Clone {
        let (values, weights) = (self.values.as_chunks::<N>().0, self.weights.as_chunks::<N>().0);
        values.iter().zip(weights).map(|(values, weights)| WeightedGroup { values, weights })
    }

    /// The block as one group.
    #[inline(always)]
    pub fn whole(&self) -> WeightedGroup<'_, LEN> {
        WeightedGroup { values: &self.values, weights: &self.weights }
    }
}

impl<'a, const N: usize> WeightedGroup<'a, N> {
    /// The runs of eight values of the group.
    #[inline(always)]
    pub fn eights(self) -> impl Iterator<Item = WeightedGroup<'a, 8>> {
        let (values, weights) = (self.values.as_chunks::<8>().0, self.weights.as_chunks::<8>().0);
        values.iter().zip(weights).map(|(values, weights)| WeightedGroup { values, weights })
    }

    /// Error of restoring value `i` as `restored(i)`.
    #[inline(always)]
    pub fn error(&self, restored: impl Fn(usize) -> f32) -> f32 {
        sum::<N>(|i| {
            let miss = self.values[i] - restored(i);
            self.weights[i] * miss * miss
        })
    }

    /// The value of largest magnitude.
    #[inline(always)]
    fn extreme(&self) -> f32 {
        self.values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
    }
}

/// Sum of `N` terms, which are a multiple of sixteen, in a fixed order that allows vector
/// instructions.
#[inline(always)]
fn sum<const N: usize>(term: impl Fn(usize) -> f32) -> f32 {
    const { assert!(N.is_multiple_of(LANES)) };
    let terms: [f32; N] = each(term);
    let mut lanes = [0.0f32; LANES];
    for terms in terms.as_chunks::<LANES>().0 {
        for (sum, term) in lanes.iter_mut().zip(terms) {
            *sum += term;
        }
    }
    fold(&lanes)
}

/// The sum of sixteen lanes, by halves. Not inlined, because the compiler generates slower code for
/// the sum together with its callers.
#[inline(never)]
fn fold(lanes: &[f32; LANES]) -> f32 {
    let (mut eight, mut four) = ([0.0; 8], [0.0; 4]);
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for i in 0..4 {
        four[i] = eight[i] + eight[i + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

const LANES: usize = 16;

/// The `N` results of `f`, by a plain loop that the compiler vectorises.
#[inline(always)]
fn each<const N: usize>(f: impl Fn(usize) -> f32) -> [f32; N] {
    let mut out = [0.0; N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(i);
    }
    out
}

/// The integer nearest to `value` within `low..=high`, which are below 2^22: adding and subtracting
/// 1.5 * 2^23 leaves no bits for a fraction.
#[inline(always)]
pub(super) fn nearest(value: f32, low: f32, high: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    // Comparisons, because `max` and `min` cost more for their treatment of NaN.
    let value = if value > low { value } else { low };
    let value = if value < high { value } else { high };
    (value + SHIFT) - SHIFT
}

/// `1 / scale`, or zero if only zero can be stored.
#[inline(always)]
pub(super) fn inverse(scale: f32) -> f32 {
    if scale.abs() < MIN_SCALE { 0.0 } else { 1.0 / scale }
}

/// The nearest finite f16, which is zero only if `value` is.
#[inline(always)]
fn factor(value: f32) -> f16 {
    let most = f16::MAX.to_f32();
    let near = f16::from_f32(value.clamp(-most, most));
    if near.to_bits() & 0x7fff == 0 && value.abs() >= MIN_SCALE {
        return f16::from_bits(near.to_bits() | 1);
    }
    near
}

/// The f16 nearest to `value`, the one below and the one above it in magnitude, all finite.
#[inline(always)]
fn factors(value: f32) -> [f16; 3] {
    let bits = factor(value).to_bits();
    let (sign, magnitude) = (bits & 0x8000, bits & 0x7fff);
    let largest = f16::MAX.to_bits();
    [magnitude, magnitude.saturating_sub(1), (magnitude + 1).min(largest)]
        .map(|magnitude| f16::from_bits(sign | magnitude))
}

/// The fit with the smaller error; the first if equal.
#[inline(always)]
fn lesser<T>(a: (T, f32), b: (T, f32)) -> (T, f32) {
    if b.1 < a.1 { b } else { a }
}

/// `value` as f16 in the first two bytes.
#[inline(always)]
pub(super) fn store_f16(value: f16, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&value.to_le_bytes());
}
