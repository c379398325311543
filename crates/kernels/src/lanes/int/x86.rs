//! The integer lanes in two 256-bit registers, with and without VNNI, and in one of 512 bits.
#![allow(unsafe_code)]
// SAFETY of every block here: these functions are reached only from shells compiled for and run
// on their instruction set (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::{IntLanes, Task, enter};
use crate::isa::features;
use crate::lanes::x86 as float;
use std::arch::x86_64::*;

/// 64 bytes, or sixteen sums.
type Two = [__m256i; 2];

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

#[derive(Clone, Copy)]
pub(crate) struct AvxVnni;

/// What both 256-bit sets have in common.
macro_rules! common256 {
    () => {
        type Float = float::Avx2;
        type Codes = Two;
        type Sums = Two;
        const ROWS: usize = 4;

        #[inline(always)]
        unsafe fn codes_at(src: *const u8) -> Two {
            unsafe { [_mm256_loadu_si256(src.cast()), _mm256_loadu_si256(src.add(32).cast())] }
        }

        #[inline(always)]
        unsafe fn store_codes(codes: Two, dst: *mut u8) {
            unsafe {
                _mm256_storeu_si256(dst.cast(), codes[0]);
                _mm256_storeu_si256(dst.add(32).cast(), codes[1]);
            }
        }

        #[inline(always)]
        fn field(codes: Two, shift: u32, mask: u8) -> Two {
            unsafe {
                let (count, mask) = (_mm_cvtsi32_si128(shift as i32), _mm256_set1_epi8(mask as i8));
                [
                    _mm256_and_si256(_mm256_srl_epi16(codes[0], count), mask),
                    _mm256_and_si256(_mm256_srl_epi16(codes[1], count), mask),
                ]
            }
        }

        #[inline(always)]
        fn raised(codes: Two, shift: u32, mask: u8) -> Two {
            unsafe {
                let (count, mask) = (_mm_cvtsi32_si128(shift as i32), _mm256_set1_epi8(mask as i8));
                [
                    _mm256_and_si256(_mm256_sll_epi16(codes[0], count), mask),
                    _mm256_and_si256(_mm256_sll_epi16(codes[1], count), mask),
                ]
            }
        }

        #[inline(always)]
        fn either(a: Two, b: Two) -> Two {
            unsafe { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        }

        #[inline(always)]
        fn lookup(table: &[i8; 16], codes: Two) -> Two {
            unsafe {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                [_mm256_shuffle_epi8(table, codes[0]), _mm256_shuffle_epi8(table, codes[1])]
            }
        }

        #[inline(always)]
        fn zero() -> Two {
            [unsafe { _mm256_setzero_si256() }; 2]
        }

        #[inline(always)]
        unsafe fn shifted_at(src: *const u32, shift: u32) -> Two {
            [unsafe { _mm256_set1_epi32((*src).cast_signed() << shift) }; 2]
        }

        #[inline(always)]
        fn float(sums: Two) -> float::Avx2 {
            unsafe { float::Avx2::new(_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])) }
        }

        #[inline(always)]
        unsafe fn i8_at(src: *const u8) -> float::Avx2 {
            unsafe {
                let bytes = _mm_loadu_si128(src.cast());
                let high = _mm_unpackhi_epi64(bytes, bytes);
                float::Avx2::new(
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
                )
            }
        }

        #[inline(always)]
        unsafe fn f16_at(src: *const u8) -> float::Avx2 {
            unsafe {
                float::Avx2::new(
                    _mm256_cvtph_ps(_mm_loadu_si128(src.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(src.add(16).cast())),
                )
            }
        }
    };
}

/// Sums of four products each, of bytes 0 to 128 with signed bytes, none -128: neighbours add up
/// to 32,512 at most, so the saturating step never saturates.
#[inline(always)]
unsafe fn quads(codes: __m256i, x: __m256i) -> __m256i {
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)) }
}

/// As `quads`, of signed codes: their signs move to the other factor.
#[inline(always)]
unsafe fn signed_quads(codes: __m256i, x: __m256i) -> __m256i {
    unsafe { quads(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes)) }
}

impl IntLanes for Avx2 {
    common256!();
    const BIAS: Option<u32> = None;

    enter!(Avx2);

    #[inline(always)]
    fn dot(sums: Two, codes: Two, quad: i32) -> Two {
        unsafe {
            let x = _mm256_set1_epi32(quad);
            [
                _mm256_add_epi32(sums[0], quads(codes[0], x)),
                _mm256_add_epi32(sums[1], quads(codes[1], x)),
            ]
        }
    }

    #[inline(always)]
    fn dot_signed(sums: Two, codes: Two, quad: i32) -> Two {
        unsafe {
            let x = _mm256_set1_epi32(quad);
            [
                _mm256_add_epi32(sums[0], signed_quads(codes[0], x)),
                _mm256_add_epi32(sums[1], signed_quads(codes[1], x)),
            ]
        }
    }
}

impl IntLanes for AvxVnni {
    common256!();
    const BIAS: Option<u32> = Some(7);

    enter!(AvxVnni);

    #[inline(always)]
    fn signed(codes: Two) -> Two {
        unsafe {
            let bias = _mm256_set1_epi8(-128);
            [_mm256_xor_si256(codes[0], bias), _mm256_xor_si256(codes[1], bias)]
        }
    }

    #[inline(always)]
    fn dot(sums: Two, codes: Two, quad: i32) -> Two {
        unsafe {
            let x = _mm256_set1_epi32(quad);
            [
                _mm256_dpbusd_avx_epi32(sums[0], codes[0], x),
                _mm256_dpbusd_avx_epi32(sums[1], codes[1], x),
            ]
        }
    }
}

features! { Avx512Vnni compiled
    /// Sixteen times the value at `src`, shifted to the left. By hand: the compiler shifts before
    /// it copies to all lanes, and a copy between registers takes a port of the products, which
    /// neither copies from memory nor shifts do.
    #[inline]
    unsafe fn shifted<const SHIFT: u32>(src: *const u32) -> __m512i {
        let sums;
        unsafe {
            std::arch::asm!(
                "vpslld {sums}, dword ptr [{src}]{{1to16}}, {shift}",
                sums = lateout(zmm_reg) sums,
                src = in(reg) src,
                shift = const SHIFT,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        sums
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512Vnni;

impl IntLanes for Avx512Vnni {
    type Float = float::Avx512;
    type Codes = __m512i;
    type Sums = __m512i;
    const ROWS: usize = 6;
    const BIAS: Option<u32> = Some(7);

    enter!(Avx512Vnni);

    #[inline(always)]
    unsafe fn codes_at(src: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(src.cast()) }
    }

    #[inline(always)]
    unsafe fn store_codes(codes: __m512i, dst: *mut u8) {
        unsafe { _mm512_storeu_si512(dst.cast(), codes) }
    }

    #[inline(always)]
    fn field(codes: __m512i, shift: u32, mask: u8) -> __m512i {
        unsafe {
            let shifted = _mm512_srl_epi16(codes, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn raised(codes: __m512i, shift: u32, mask: u8) -> __m512i {
        unsafe {
            let shifted = _mm512_sll_epi16(codes, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }

    #[inline(always)]
    fn either(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn lookup(table: &[i8; 16], codes: __m512i) -> __m512i {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        }
    }

    #[inline(always)]
    fn signed(codes: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(codes, _mm512_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn zero() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn shifted_at(src: *const u32, shift: u32) -> __m512i {
        unsafe {
            match shift {
                0 => shifted::<0>(src),
                1 => shifted::<1>(src),
                2 => shifted::<2>(src),
                3 => shifted::<3>(src),
                4 => shifted::<4>(src),
                5 => shifted::<5>(src),
                6 => shifted::<6>(src),
                7 => shifted::<7>(src),
                _ => unreachable!("codes have eight bits"),
            }
        }
    }

    #[inline(always)]
    fn dot(sums: __m512i, codes: __m512i, quad: i32) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(quad)) }
    }

    #[inline(always)]
    fn float(sums: __m512i) -> float::Avx512 {
        float::Avx512(unsafe { _mm512_cvtepi32_ps(sums) })
    }

    #[inline(always)]
    fn magnitude(a: float::Avx512, b: float::Avx512) -> f32 {
        unsafe {
            let (a, b) = (_mm512_abs_ps(a.0), _mm512_abs_ps(b.0));
            let both = _mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b));
            f32::from_bits(_mm512_reduce_max_epu32(both))
        }
    }

    #[inline(always)]
    fn bytes(values: float::Avx512, out: &mut [u32; 4]) -> i32 {
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values.0));
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
            // Sums of unsigned bytes, eight each: every byte is 128 too large.
            let sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
            _mm_cvtsi128_si32(sums) + _mm_extract_epi32::<2>(sums) - 16 * 128
        }
    }

    #[inline(always)]
    unsafe fn i8_at(src: *const u8) -> float::Avx512 {
        unsafe {
            let bytes = _mm_loadu_si128(src.cast());
            float::Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        }
    }

    #[inline(always)]
    unsafe fn f16_at(src: *const u8) -> float::Avx512 {
        unsafe { float::Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(src.cast()))) }
    }
}
