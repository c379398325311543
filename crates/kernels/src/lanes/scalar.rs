//! The lanes as an array: what every instruction set must agree with.
#![allow(unsafe_code)]

use crate::lanes::float::{LANES, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; LANES]);

#[inline(always)]
fn zip(a: Scalar, b: Scalar, f: impl Fn(f32, f32) -> f32) -> Scalar {
    Scalar(std::array::from_fn(|i| f(a.0[i], b.0[i])))
}

impl Lanes for Scalar {
    fn splat(v: f32) -> Self {
        Self([v; LANES])
    }

    unsafe fn load_at(src: *const f32) -> Self {
        // SAFETY: the caller vouches for 16 readable values.
        Self(unsafe { src.cast::<[f32; LANES]>().read_unaligned() })
    }

    unsafe fn load_bf16_at(src: *const u16) -> Self {
        // SAFETY: the caller vouches for 16 readable values.
        let bits = unsafe { src.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|b| f32::from_bits(u32::from(b) << 16)))
    }

    unsafe fn store_at(self, dst: *mut f32) {
        // SAFETY: the caller vouches for 16 writable values.
        unsafe { dst.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }

    fn add(self, other: Self) -> Self {
        zip(self, other, |a, b| a + b)
    }

    fn sub(self, other: Self) -> Self {
        zip(self, other, |a, b| a - b)
    }

    fn mul(self, other: Self) -> Self {
        zip(self, other, |a, b| a * b)
    }

    fn div(self, other: Self) -> Self {
        zip(self, other, |a, b| a / b)
    }

    fn max(self, other: Self) -> Self {
        zip(self, other, |a, b| if b > a { b } else { a })
    }

    fn round(self) -> Self {
        Self(self.0.map(f32::round_ties_even))
    }

    fn scale_exp2(self, n: Self) -> Self {
        zip(self, n, |a, n| a * f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23))
    }

    fn zero_if_below(self, limit: Self, value: Self) -> Self {
        let kept = |i: usize| if self.0[i] < limit.0[i] { 0.0 } else { value.0[i] };
        Self(std::array::from_fn(kept))
    }

    fn sum(self) -> f32 {
        let mut v = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                v[i] += v[i + half];
            }
        }
        v[0]
    }
}
