//! What this CPU can do at most: sustained reading and multiply-adds, one thread's share.
//!
//! These are yardsticks for `bench`, measured with the same instruction sets as the kernels.
#![allow(unsafe_code)]

use crate::isa::Isa;
use crate::lanes::int::{IntLanes, int_dispatch};
use crate::lanes::{LANES, Lanes, isa_dispatch, scalar::Scalar};

/// Independent groups of lanes: enough to hide the latency of a multiply-add, few enough to
/// stay in registers.
trait Chains: Lanes {
    const CHAINS: usize;
}

/// The most groups of any instruction set.
const MOST: usize = 12;

impl Chains for Scalar {
    const CHAINS: usize = 1;
}
#[cfg(target_arch = "x86_64")]
impl Chains for crate::lanes::x86::Avx2 {
    // Two of 16 registers each.
    const CHAINS: usize = 6;
}
#[cfg(target_arch = "x86_64")]
impl Chains for crate::lanes::x86::Avx512 {
    // One of 32 registers each.
    const CHAINS: usize = 12;
}
#[cfg(target_arch = "aarch64")]
impl Chains for crate::lanes::neon::Neon {
    // Four of 32 registers each.
    const CHAINS: usize = 6;
}

/// Operations of one step of [`multiply_adds`]: a product and a sum per lane.
pub const OPS_PER_STEP: u64 = (2 * LANES * MOST) as u64;
/// Operations of one step of [`bf16_dots`]: two products and two sums per lane.
pub const BF16_OPS_PER_STEP: u64 = 2 * OPS_PER_STEP;

isa_dispatch! {
    /// Reads all of `data` once; `sum` receives a value that depends on all of it.
    pub fn read(data: &[f32], sum: &mut f32) = read_body
}

isa_dispatch! {
    /// Runs `steps` steps of f32 multiply-adds in registers, 12 groups of lanes each.
    pub fn multiply_adds(steps: u64, sum: &mut f32) = multiply_adds_body
}

#[inline(always)]
fn read_body<L: Lanes>(data: &[f32], sum: &mut f32) {
    let mut acc = [L::splat(0.0); 4];
    let (chunks, _) = data.as_chunks::<{ 4 * LANES }>();
    for chunk in chunks {
        let (parts, _) = chunk.as_chunks::<LANES>();
        for (acc, part) in acc.iter_mut().zip(parts) {
            *acc = acc.add(L::load(part));
        }
    }
    *sum = acc[0].add(acc[1]).add(acc[2].add(acc[3])).sum();
}

#[inline(always)]
fn multiply_adds_body<L: Chains>(steps: u64, sum: &mut f32) {
    let (factor, step) = (L::splat(0.999_9), L::splat(1e-4));
    let mut acc = [L::splat(*sum); MOST];
    for _ in 0..steps * MOST as u64 / L::CHAINS as u64 {
        for acc in &mut acc[..L::CHAINS] {
            *acc = acc.mul_add(factor, step);
        }
    }
    *sum = acc.iter().fold(L::splat(0.0), |a, b| a.add(*b)).sum();
}

/// Runs `steps` steps of independent BF16 dot products in registers, or says that this
/// instruction set has none.
#[cfg(target_arch = "x86_64")]
pub fn bf16_dots(isa: Isa, steps: u64, sum: &mut f32) -> bool {
    use crate::isa::features;
    use std::arch::x86_64::{
        __m512bh, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_epi32,
        _mm512_setzero_ps,
    };
    features! { Avx512Bf16 compiled
        fn shell(steps: u64, seed: f32) -> f32 {
            // SAFETY: both types are 64 bytes of plain bits.
            let value: __m512bh =
                unsafe { std::mem::transmute(_mm512_set1_epi32(seed.to_bits() as i32)) };
            let mut acc = [_mm512_setzero_ps(); MOST];
            for _ in 0..steps {
                for acc in &mut acc {
                    *acc = _mm512_dpbf16_ps(*acc, value, value);
                }
            }
            _mm512_reduce_add_ps(acc.iter().fold(_mm512_setzero_ps(), |a, b| _mm512_add_ps(a, *b)))
        }
    }
    if isa.has_tiles() {
        let tiles = (steps * BF16_OPS_PER_STEP).div_ceil(crate::layout::bf16::amx::OPS_PER_STEP);
        *sum = crate::layout::bf16::amx::multiply(tiles, *sum);
    } else if isa.has_bf16_dot() {
        // SAFETY: an `Isa` with BF16 dot products exists only where the CPU has these features.
        *sum = unsafe { shell(steps, *sum) };
    }
    isa.has_bf16_dot()
}

/// Runs `steps` steps of independent BF16 dot products in registers, or says that this
/// instruction set has none.
#[cfg(not(target_arch = "x86_64"))]
pub fn bf16_dots(_isa: Isa, _steps: u64, _sum: &mut f32) -> bool {
    false
}

/// Operations of one step of [`int8_dots`]: four products and four sums per lane.
pub const INT8_OPS_PER_STEP: u64 = 4 * OPS_PER_STEP;

int_dispatch! {
    /// Runs `steps` steps of dot products of bytes in registers, 12 groups of lanes each.
    pub fn int8_dots(steps: u64, sum: &mut f32) = int8_dots_body
}

#[inline(always)]
fn int8_dots_body<I: IntLanes>(steps: u64, sum: &mut f32) {
    // SAFETY: 64 bytes.
    let codes = unsafe { I::codes_at([1; 64].as_ptr()) };
    let quad = sum.to_bits() as i32 & 0x0707_0707;
    // Chains that registers hold: one register each, or two.
    let mut sums = [I::zero(); MOST];
    let chains = if I::ROWS > 4 { MOST } else { MOST / 2 };
    for _ in 0..steps * MOST as u64 / chains as u64 {
        for sum in &mut sums[..chains] {
            *sum = I::close(*sum, I::dot(I::open(*sum), codes, quad));
        }
    }
    *sum = sums.iter().fold(I::Float::splat(0.0), |all, sum| all.add(I::float(*sum))).sum();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_sees_every_value() {
        let mut data = vec![1.0f32; 64 * 5];
        for isa in Isa::available() {
            let mut sum = 0.0;
            read(isa, &data, &mut sum);
            assert_eq!(sum, 320.0);
        }
        data[317] = 3.0;
        let mut sum = 0.0;
        read(Isa::SCALAR, &data, &mut sum);
        assert_eq!(sum, 322.0);
    }

    #[test]
    fn probes_compute_something_that_depends_on_their_steps() {
        for isa in Isa::available() {
            let run = |steps| {
                let mut sum = 0.5;
                multiply_adds(isa, steps, &mut sum);
                sum
            };
            assert_ne!(run(1), run(100));
            let mut sum = 1.5;
            int8_dots(isa, 3, &mut sum);
            // Of the bits of 1.5, 0x3FC00000, only the top byte has any of the lowest three: all.
            assert_eq!(sum, 3.0 * 12.0 * 16.0 * 7.0, "{isa:?}");
            let mut sum = 1.0;
            assert_eq!(bf16_dots(isa, 3, &mut sum), isa.has_bf16_dot());
        }
    }
}
