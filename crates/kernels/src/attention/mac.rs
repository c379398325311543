//! Multiply-adds over units, sixteen at a time.
#![allow(unsafe_code)]

use crate::lanes::transpose::Transpose;
use crate::lanes::{LANES, scalar::Scalar, widen::Widen};
use std::marker::PhantomData;

/// Sizes of register tiles.
pub(crate) trait Tiles: Widen + Transpose {
    /// Whether there are 32 registers of sixteen lanes, for tiles of twelve queries by two groups
    /// of lanes; else six by one.
    const WIDE: bool;
}

impl Tiles for Scalar {
    const WIDE: bool = false;
}
#[cfg(target_arch = "x86_64")]
impl Tiles for crate::lanes::x86::Avx2 {
    const WIDE: bool = false;
}
#[cfg(target_arch = "x86_64")]
impl Tiles for crate::lanes::x86::Avx512 {
    const WIDE: bool = true;
}
#[cfg(target_arch = "aarch64")]
impl Tiles for crate::lanes::neon::Neon {
    const WIDE: bool = false;
}

/// The multiply-add of a unit. A unit of a key is one or two neighbouring values of one position; a
/// unit of values is one value of one or two neighbouring positions. Its factor is as many values
/// of a query, or as many weights.
pub(super) trait Mac {
    type Lanes: Tiles;
    /// The stored factor of one query.
    type Factor: bytemuck::Pod;
    /// A factor in all lanes.
    type Splat: Copy;
    /// Sixteen units in registers.
    type Units: Copy;
    /// Values in a unit.
    const WIDTH: usize;

    /// Writes the factors of `values` to `factors`, the last one padded with zeros.
    fn factors(values: &[f32], factors: &mut [Self::Factor]);
    /// # Safety
    /// A factor must be readable.
    unsafe fn splat(at: *const Self::Factor) -> Self::Splat;
    /// `acc` plus the products of a unit, in ascending order.
    fn mac(factor: Self::Splat, units: Self::Units, acc: Self::Lanes) -> Self::Lanes;
    /// Writes the sixteen weights from position `16 * chunk` to `row` as factors, in place of the
    /// values of that chunk; returns the weights as rounded.
    fn put_weights(weights: Self::Lanes, row: &mut [f32], chunk: usize) -> Self::Lanes;
}

/// Units of one f32 value.
pub(super) struct Single<L>(PhantomData<L>);

impl<L: Tiles> Mac for Single<L> {
    type Lanes = L;
    type Factor = f32;
    type Splat = L;
    type Units = L;
    const WIDTH: usize = 1;

    #[inline(always)]
    fn factors(values: &[f32], factors: &mut [f32]) {
        factors[..values.len()].copy_from_slice(values);
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> L {
        // SAFETY: the caller's promise.
        L::splat(unsafe { *at })
    }

    #[inline(always)]
    fn mac(factor: L, units: L, acc: L) -> L {
        factor.mul_add(units, acc)
    }

    #[inline(always)]
    fn put_weights(weights: L, row: &mut [f32], chunk: usize) -> L {
        weights.store(&mut row.as_chunks_mut::<LANES>().0[chunk]);
        weights
    }
}

/// Units of two BF16 values, widened to f32 in registers.
pub(super) struct Wide<L>(PhantomData<L>);

impl<L: Tiles> Mac for Wide<L> {
    type Lanes = L;
    type Factor = [f32; 2];
    type Splat = (L, L);
    type Units = (L, L);
    const WIDTH: usize = 2;

    #[inline(always)]
    fn factors(values: &[f32], factors: &mut [[f32; 2]]) {
        let (pairs, last) = values.as_chunks::<2>();
        factors[..pairs.len()].copy_from_slice(pairs);
        if let [last] = last {
            factors[pairs.len()] = [*last, 0.0];
        }
    }

    #[inline(always)]
    unsafe fn splat(at: *const [f32; 2]) -> (L, L) {
        // SAFETY: the caller's promise.
        let [low, high] = unsafe { *at };
        (L::splat(low), L::splat(high))
    }

    #[inline(always)]
    fn mac(factor: (L, L), units: (L, L), acc: L) -> L {
        factor.1.mul_add(units.1, factor.0.mul_add(units.0, acc))
    }

    #[inline(always)]
    fn put_weights(weights: L, row: &mut [f32], chunk: usize) -> L {
        Single::put_weights(weights, row, chunk)
    }
}

/// Units of two BF16 values, multiplied with BF16 factors by `vdpbf16ps`.
#[cfg(target_arch = "x86_64")]
pub(super) struct Dot;

#[cfg(target_arch = "x86_64")]
mod dot {
    use crate::attention::mac::{Dot, Mac};
    use crate::lanes::LANES;
    use crate::lanes::{Lanes, x86::Avx512};
    use std::arch::x86_64::*;

    impl Mac for Dot {
        type Lanes = Avx512;
        type Factor = u32;
        type Splat = __m512bh;
        type Units = __m512bh;
        const WIDTH: usize = 2;

        #[inline(always)]
        fn factors(values: &[f32], factors: &mut [u32]) {
            for (values, factors) in values.chunks(LANES).zip(factors.chunks_mut(LANES / 2)) {
                let values = crate::lanes::load_partial::<Avx512>(values, 0.0);
                let pairs = bytemuck::cast::<[u16; LANES], [u32; LANES / 2]>(round(values));
                factors.copy_from_slice(&pairs[..factors.len()]);
            }
        }

        #[inline(always)]
        unsafe fn splat(at: *const u32) -> __m512bh {
            // SAFETY: the caller's promise; both types are 64 bytes of plain bits.
            unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(*at as i32)) }
        }

        #[inline(always)]
        fn mac(factor: __m512bh, units: __m512bh, acc: Avx512) -> Avx512 {
            // SAFETY: reached only from the shell compiled for avx512bf16.
            Avx512(unsafe { _mm512_dpbf16_ps(acc.0, factor, units) })
        }

        #[inline(always)]
        fn put_weights(weights: Avx512, row: &mut [f32], chunk: usize) -> Avx512 {
            let bits = round(weights);
            let row: &mut [u16] = bytemuck::cast_slice_mut(row);
            row.as_chunks_mut::<LANES>().0[chunk] = bits;
            // SAFETY: `bits` is 16 values.
            unsafe { Avx512::load_bf16_at(bits.as_ptr()) }
        }
    }

    /// Rounds to the nearest BF16 values, ties to even, denormals to zero.
    #[inline(always)]
    fn round(values: Avx512) -> [u16; LANES] {
        // SAFETY: reached only from the shell compiled for avx512bf16; both types are 32 bytes of
        // plain bits.
        unsafe { std::mem::transmute::<__m256bh, [u16; LANES]>(_mm512_cvtneps_pbh(values.0)) }
    }
}
