//! The integer lanes in four 128-bit Arm registers.
#![allow(unsafe_code)]
// SAFETY of every block here: these functions are reached only from shells compiled for NEON
// (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::sums::{IntLanes, IntRows, Task, enter, parts_are_sums};
use crate::isa::features;
use crate::lanes::float::LANES;
use crate::lanes::neon as float;
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

#[derive(Clone, Copy)]
pub(crate) struct NeonDot;

type CodeBytes = [uint8x16_t; 4];
type Four = [int32x4_t; 4];

/// Sums of four products each: pairs fit sixteen bits, because no activation is -128.
#[inline(always)]
unsafe fn quads(sums: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
    unsafe {
        let codes = vreinterpretq_s8_u8(codes);
        let low = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
        let high = vmull_s8(vget_high_s8(codes), vget_high_s8(x));
        vpadalq_s16(sums, vpaddq_s16(low, high))
    }
}

/// Each word shifted to the left, or to the right by less than nothing, `& mask`.
#[inline(always)]
fn shifted(codes: CodeBytes, shift: i32, mask: u32) -> CodeBytes {
    codes.map(|codes| unsafe {
        let words = vshlq_u32(vreinterpretq_u32_u8(codes), vdupq_n_s32(shift));
        vreinterpretq_u8_u32(vandq_u32(words, vdupq_n_u32(mask)))
    })
}

/// What both sets have in common.
macro_rules! common {
    () => {
        type Float = float::Neon;
        type Codes = CodeBytes;
        type Sums = Four;
        const WIDTH: usize = LANES;
        const CENTRE: Option<u32> = None;

        parts_are_sums!();

        #[inline(always)]
        unsafe fn codes_at(src: *const u8) -> CodeBytes {
            unsafe {
                [vld1q_u8(src), vld1q_u8(src.add(16)), vld1q_u8(src.add(32)), vld1q_u8(src.add(48))]
            }
        }

        #[inline(always)]
        unsafe fn store_codes(codes: CodeBytes, dst: *mut u8) {
            for (i, codes) in codes.into_iter().enumerate() {
                unsafe { vst1q_u8(dst.add(16 * i), codes) }
            }
        }

        #[inline(always)]
        fn field(codes: CodeBytes, shift: u32, mask: u8) -> CodeBytes {
            let (count, mask) = unsafe { (vdupq_n_s8(-(shift as i8)), vdupq_n_u8(mask)) };
            codes.map(|codes| unsafe { vandq_u8(vshlq_u8(codes, count), mask) })
        }

        #[inline(always)]
        fn raised(codes: CodeBytes, shift: u32, mask: u8) -> CodeBytes {
            let (count, mask) = unsafe { (vdupq_n_s8(shift as i8), vdupq_n_u8(mask)) };
            codes.map(|codes| unsafe { vandq_u8(vshlq_u8(codes, count), mask) })
        }

        #[inline(always)]
        fn either(a: CodeBytes, b: CodeBytes) -> CodeBytes {
            std::array::from_fn(|i| unsafe { vorrq_u8(a[i], b[i]) })
        }

        #[inline(always)]
        fn bits(codes: CodeBytes, shift: u32, mask: u32) -> CodeBytes {
            shifted(codes, -(shift as i32), mask)
        }

        #[inline(always)]
        fn lifted(codes: CodeBytes, shift: u32, mask: u32) -> CodeBytes {
            shifted(codes, shift as i32, mask)
        }

        #[inline(always)]
        fn differ(a: CodeBytes, b: CodeBytes) -> CodeBytes {
            std::array::from_fn(|i| unsafe { veorq_u8(a[i], b[i]) })
        }

        #[inline(always)]
        unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> CodeBytes {
            let rows = unsafe { src.cast::<[[u8; BYTES]; LANES]>().read_unaligned() };
            let mut words = [[0; 4]; LANES];
            for (word, row) in words.iter_mut().zip(rows) {
                word[..BYTES].copy_from_slice(&row);
            }
            unsafe { Self::codes_at(words.as_flattened().as_ptr()) }
        }

        #[inline(always)]
        fn gather<const N: usize>(table: &[u32; N], codes: CodeBytes) -> CodeBytes {
            let mut words = [0u32; LANES];
            unsafe { Self::store_codes(codes, words.as_mut_ptr().cast()) };
            for word in &mut words {
                *word = table[*word as usize % N];
            }
            unsafe { Self::codes_at(words.as_ptr().cast()) }
        }

        #[inline(always)]
        fn lookup(table: &[i8; 16], codes: CodeBytes) -> CodeBytes {
            let table = unsafe { vld1q_u8(table.as_ptr().cast()) };
            codes.map(|codes| unsafe { vqtbl1q_u8(table, codes) })
        }

        #[inline(always)]
        fn zero() -> Four {
            [unsafe { vdupq_n_s32(0) }; 4]
        }

        #[inline(always)]
        unsafe fn sums_at(src: *const u32) -> Four {
            [unsafe { vdupq_n_s32((*src).cast_signed()) }; 4]
        }

        #[inline(always)]
        unsafe fn start_at(src: *const u32, zero: u32) -> Four {
            [unsafe { vdupq_n_s32((*src).cast_signed() << zero) }; 4]
        }

        #[inline(always)]
        fn float(sums: Four) -> float::Neon {
            float::Neon(sums.map(|sums| unsafe { vcvtq_f32_s32(sums) }))
        }
    };
}

impl IntLanes for Neon {
    type Tile = Self;
    const ROWS: usize = 4;

    enter!(Neon);
}

impl IntRows for Neon {
    common!();

    #[inline(always)]
    fn dot(sums: Four, codes: CodeBytes, quad: i32) -> Four {
        let x = unsafe { vreinterpretq_s8_s32(vdupq_n_s32(quad)) };
        std::array::from_fn(|i| unsafe { quads(sums[i], codes[i], x) })
    }
}

features! { NeonDot compiled
    /// Adds sums of four products each. By hand: the intrinsic is not stable yet.
    #[inline]
    fn sdot(mut sums: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
        unsafe {
            std::arch::asm!(
                "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.16b",
                sums = inout(vreg) sums,
                codes = in(vreg) codes,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sums
    }
}

impl IntLanes for NeonDot {
    type Tile = Self;
    const ROWS: usize = 4;

    enter!(NeonDot);
}

impl IntRows for NeonDot {
    common!();

    #[inline(always)]
    fn dot(sums: Four, codes: CodeBytes, quad: i32) -> Four {
        let x = unsafe { vreinterpretq_s8_s32(vdupq_n_s32(quad)) };
        std::array::from_fn(|i| unsafe { sdot(sums[i], codes[i], x) })
    }
}
