//! What this CPU can do at most: sustained reading and multiply-adds, one thread's share.
//!
//! These are yardsticks for `bench`, measured with the same instruction sets as the kernels. A core
//! with two ports that multiply does this many operations per cycle:
//!
//! | | f32 | bytes | BF16 |
//! |---|---|---|---|
//! | AVX2 | 32 | 64 | |
//! | AVX-VNNI | 32 | 128 | |
//! | AVX-512 | 64 | 64, or 256 with VNNI | 32 to 128 |
//! | AMX | 64 | 256 | 1024 |
//!
//! AVX2 takes three instructions for 32 products of bytes, two of which multiply: `vpmaddubsw`,
//! `vpmaddwd` and `vpaddd`.
#![allow(unsafe_code)]

use crate::isa::Isa;
use crate::lanes::int::{self, IntLanes, int_dispatch};
use crate::lanes::{LANES, Lanes, isa_dispatch, scalar::Scalar};

/// Independent groups of lanes: enough to hide the latency of a multiply-add, few enough to
/// stay in registers.
trait Chains: Lanes {
    const CHAINS: usize;
}

/// The most groups of any instruction set.
const MAX_GROUPS: usize = 12;

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
pub const OPS_PER_STEP: u64 = (2 * LANES * MAX_GROUPS) as u64;
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
    let mut acc = [L::splat(*sum); MAX_GROUPS];
    for _ in 0..steps * MAX_GROUPS as u64 / L::CHAINS as u64 {
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
            let mut acc = [_mm512_setzero_ps(); MAX_GROUPS];
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

/// As [`Chains`], of the integer lanes.
trait IntChains: IntLanes {
    const CHAINS: usize;

    /// The same codes, of which the compiler does not know that they are the same: it computes each
    /// product with them anew.
    fn renewed(codes: Self::Codes) -> Self::Codes;
}

impl IntChains for int::scalar::ScalarInt {
    const CHAINS: usize = 1;

    fn renewed(codes: Self::Codes) -> Self::Codes {
        std::hint::black_box(codes)
    }
}

/// Writes `IntChains` of lanes whose registers of codes are the operands of a comment.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! int_chains {
    ($set:ident, $lanes:ty, $chains:literal, |$codes:ident| $($comment:tt)*) => {
        impl IntChains for $lanes {
            const CHAINS: usize = $chains;

            #[inline(always)]
            fn renewed(codes: Self::Codes) -> Self::Codes {
                type Codes = <$lanes as IntRows>::Codes;
                crate::isa::features! { $set compiled
                    #[inline]
                    fn shell(mut $codes: Codes) -> Codes {
                        // SAFETY: no instruction comes of it.
                        unsafe {
                            std::arch::asm!(
                                $($comment)*,
                                options(nomem, nostack, preserves_flags),
                            );
                        }
                        $codes
                    }
                }
                // SAFETY: these lanes are used only where the CPU has their features.
                unsafe { shell(codes) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_chains {
    use crate::lanes::int::{IntRows, x86};
    use crate::probe::IntChains;

    // Two of 16 registers each; additions, which end a chain here, take one cycle.
    int_chains! { Avx2, x86::Avx2, 4, |codes|
        "/* {} {} */", inout(ymm_reg) codes[0], inout(ymm_reg) codes[1]
    }
    int_chains! { AvxVnni, x86::AvxVnni, 6, |codes|
        "/* {} {} */", inout(ymm_reg) codes[0], inout(ymm_reg) codes[1]
    }
    // One of 32 registers each.
    int_chains! { Avx512Vnni, x86::Avx512Vnni, 12, |codes|
        "/* {} */", inout(zmm_reg) codes
    }
}

#[cfg(target_arch = "aarch64")]
mod arm_chains {
    use crate::lanes::int::{IntRows, neon};
    use crate::probe::IntChains;

    // Four of 32 registers each.
    int_chains! { Neon, neon::Neon, 4, |codes|
        "/* {:v} {:v} {:v} {:v} */", inout(vreg) codes[0], inout(vreg) codes[1], inout(vreg) codes[2],
        inout(vreg) codes[3]
    }
    int_chains! { NeonDot, neon::NeonDot, 6, |codes|
        "/* {:v} {:v} {:v} {:v} */", inout(vreg) codes[0], inout(vreg) codes[1], inout(vreg) codes[2],
        inout(vreg) codes[3]
    }
}

#[inline(always)]
fn int8_dots_body<I: IntChains>(steps: u64, sum: &mut f32) {
    // SAFETY: 64 bytes.
    let mut codes = unsafe { I::codes_at([1; 64].as_ptr()) };
    let quad = sum.to_bits() as i32 & 0x0707_0707;
    let mut sums = [I::zero(); MAX_GROUPS];
    for _ in 0..steps * MAX_GROUPS as u64 / I::CHAINS as u64 {
        for sum in &mut sums[..I::CHAINS] {
            codes = I::renewed(codes);
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

    /// The highest of the rates that a few runs of `f` have, each of `count` operations, in 1e9
    /// per second.
    #[cfg(target_arch = "x86_64")]
    fn rate(count: u64, f: impl Fn()) -> f64 {
        let seconds = (0..20).map(|_| {
            let start = std::time::Instant::now();
            f();
            start.elapsed().as_secs_f64()
        });
        count as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9
    }

    /// The clock of a core in GHz: an addition that depends on the one before takes a cycle.
    #[cfg(target_arch = "x86_64")]
    fn clock() -> f64 {
        const ADDITIONS: u64 = 1 << 19;
        rate(ADDITIONS, || {
            // SAFETY: it adds in registers.
            unsafe {
                std::arch::asm!(
                    "2:", "add {sum}, {step}", "add {sum}, {step}", "add {sum}, {step}",
                    "add {sum}, {step}", "dec {left}", "jnz 2b",
                    sum = inout(reg) 0u64 => _,
                    step = in(reg) 3u64,
                    left = inout(reg) ADDITIONS / 4 => _,
                    options(nomem, nostack),
                );
            }
        })
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn no_probe_counts_more_than_the_ports_can_do() {
        const STEPS: u64 = 20_000;
        let clock = clock();
        for isa in Isa::available() {
            let [f32, int8, bf16] = match isa.name() {
                "scalar" => continue,
                "avx2" => [32.0, 64.0, 0.0],
                "avxvnni" => [32.0, 128.0, 0.0],
                "avx512f" => [64.0, 64.0, 0.0],
                "amx" => [64.0, 256.0, 1024.0],
                _ => [64.0, 256.0, 128.0],
            };
            let check = |name: &str, most: f64, per_step: u64, probe: &dyn Fn(&mut f32)| {
                let rate = rate(per_step * STEPS, || {
                    let mut sum = 1.0;
                    probe(std::hint::black_box(&mut sum));
                    std::hint::black_box(sum);
                });
                let found = rate / clock;
                // A core may clock higher a moment later.
                assert!(
                    found < 1.3 * most,
                    "{isa:?} {name}: {found:.1} per cycle at {clock:.2} GHz"
                );
            };
            check("f32", f32, OPS_PER_STEP, &|sum| multiply_adds(isa, STEPS, sum));
            check("int8", int8, INT8_OPS_PER_STEP, &|sum| int8_dots(isa, STEPS, sum));
            if isa.has_bf16_dot() {
                check("bf16", bf16, BF16_OPS_PER_STEP, &|sum| {
                    bf16_dots(isa, STEPS, sum);
                });
            }
        }
    }
}
