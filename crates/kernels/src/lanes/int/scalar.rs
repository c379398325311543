//! The integer lanes as arrays: what every instruction set must agree with.
#![allow(unsafe_code)]

use super::sums::{IntLanes, IntRows, Task, parts_are_sums};
use crate::lanes::float::{LANES, Lanes};
use std::array::from_fn;

#[derive(Clone, Copy)]
pub(crate) struct ScalarInt;

/// Each row's four codes as one word, through `f`.
#[inline(always)]
fn map_words(mut codes: [u8; 64], f: impl Fn(u32) -> u32) -> [u8; 64] {
    for word in codes.as_chunks_mut().0 {
        *word = f(u32::from_le_bytes(*word)).to_le_bytes();
    }
    codes
}

impl IntLanes for ScalarInt {
    type Tile = Self;
    const ROWS: usize = 1;

    #[inline(never)]
    fn enter<T: Task>(task: T) -> T::Output {
        task.run::<Self>()
    }
}

impl IntRows for ScalarInt {
    type Float = crate::lanes::scalar::Scalar;
    type Codes = [u8; 64];
    type Sums = [i32; LANES];
    const WIDTH: usize = LANES;
    const CENTRE: Option<u32> = None;

    parts_are_sums!();

    #[inline(never)]
    unsafe fn codes_at(src: *const u8) -> [u8; 64] {
        // SAFETY: the caller vouches for 64 readable bytes.
        unsafe { src.cast::<[u8; 64]>().read() }
    }

    #[inline(never)]
    unsafe fn store_codes(codes: [u8; 64], dst: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes.
        unsafe { dst.cast::<[u8; 64]>().write(codes) }
    }

    #[inline(never)]
    fn field(codes: [u8; 64], shift: u32, mask: u8) -> [u8; 64] {
        codes.map(|code| code >> shift & mask)
    }

    #[inline(never)]
    fn raised(codes: [u8; 64], shift: u32, mask: u8) -> [u8; 64] {
        codes.map(|code| code << shift & mask)
    }

    #[inline(never)]
    fn either(a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] | b[i])
    }

    #[inline(never)]
    fn bits(codes: [u8; 64], shift: u32, mask: u32) -> [u8; 64] {
        map_words(codes, |word| word >> shift & mask)
    }

    #[inline(never)]
    fn lifted(codes: [u8; 64], shift: u32, mask: u32) -> [u8; 64] {
        map_words(codes, |word| word << shift & mask)
    }

    #[inline(never)]
    fn differ(a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] ^ b[i])
    }

    #[inline(never)]
    unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> [u8; 64] {
        // SAFETY: the caller vouches for `BYTES` bytes of each row.
        let words = unsafe { src.cast::<[[u8; BYTES]; LANES]>().read() };
        from_fn(|i| words[i / 4].get(i % 4).copied().unwrap_or(0))
    }

    #[inline(never)]
    fn gather<const N: usize>(table: &[u32; N], codes: [u8; 64]) -> [u8; 64] {
        map_words(codes, |word| table[word as usize % N])
    }

    #[inline(never)]
    fn lookup(table: &[i8; 16], codes: [u8; 64]) -> [u8; 64] {
        codes.map(|code| table[usize::from(code)] as u8)
    }

    fn zero() -> [i32; LANES] {
        [0; LANES]
    }

    unsafe fn sums_at(src: *const u32) -> [i32; LANES] {
        // SAFETY: the caller's promise.
        [unsafe { *src }.cast_signed(); LANES]
    }

    unsafe fn start_at(src: *const u32, zero: u32) -> [i32; LANES] {
        // SAFETY: the caller's promise.
        [unsafe { *src }.cast_signed() << zero; LANES]
    }

    #[inline(never)]
    fn dot(sums: [i32; LANES], codes: [u8; 64], quad: i32) -> [i32; LANES] {
        let x = quad.to_le_bytes();
        from_fn(|row| {
            (0..4).fold(sums[row], |sum, i| {
                sum + i32::from(codes[row * 4 + i] as i8) * i32::from(x[i] as i8)
            })
        })
    }

    #[inline(never)]
    fn float(sums: [i32; LANES]) -> Self::Float {
        Lanes::load(&sums.map(|sum| sum as f32))
    }
}
