//! The lanes in four 128-bit Arm registers.
#![allow(unsafe_code)]
// SAFETY of every block here: values of this type are made only inside functions compiled for
// NEON (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use crate::lanes::float::Lanes;
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(crate) struct Neon(pub(crate) [float32x4_t; 4]);

impl Neon {
    #[inline(always)]
    fn each(self, f: impl Fn(float32x4_t) -> float32x4_t) -> Self {
        Self([f(self.0[0]), f(self.0[1]), f(self.0[2]), f(self.0[3])])
    }

    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Self {
        Self([
            f(self.0[0], o.0[0]),
            f(self.0[1], o.0[1]),
            f(self.0[2], o.0[2]),
            f(self.0[3], o.0[3]),
        ])
    }
}

impl Lanes for Neon {
    #[inline(always)]
    fn splat(v: f32) -> Self {
        Self([unsafe { vdupq_n_f32(v) }; 4])
    }

    #[inline(always)]
    unsafe fn load_at(src: *const f32) -> Self {
        unsafe {
            Self([
                vld1q_f32(src),
                vld1q_f32(src.add(4)),
                vld1q_f32(src.add(8)),
                vld1q_f32(src.add(12)),
            ])
        }
    }

    #[inline(always)]
    unsafe fn load_bf16_at(src: *const u16) -> Self {
        unsafe {
            let quarter = |at: *const u16| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at)));
            Self([quarter(src), quarter(src.add(4)), quarter(src.add(8)), quarter(src.add(12))])
        }
    }

    #[inline(always)]
    unsafe fn store_at(self, dst: *mut f32) {
        unsafe {
            for (i, quarter) in self.0.into_iter().enumerate() {
                vst1q_f32(dst.add(i * 4), quarter);
            }
        }
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self([
            unsafe { vfmaq_f32(c.0[0], self.0[0], b.0[0]) },
            unsafe { vfmaq_f32(c.0[1], self.0[1], b.0[1]) },
            unsafe { vfmaq_f32(c.0[2], self.0[2], b.0[2]) },
            unsafe { vfmaq_f32(c.0[3], self.0[3], b.0[3]) },
        ])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| unsafe { vaddq_f32(a, b) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| unsafe { vsubq_f32(a, b) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| unsafe { vmulq_f32(a, b) })
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| unsafe { vdivq_f32(a, b) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| unsafe { vbslq_f32(vcgtq_f32(b, a), b, a) })
    }

    #[inline(always)]
    fn round(self) -> Self {
        self.each(|a| unsafe { vrndnq_f32(a) })
    }

    #[inline(always)]
    fn scale_exp2(self, n: Self) -> Self {
        self.zip(n, |a, n| unsafe {
            let biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased)))
        })
    }

    #[inline(always)]
    fn zero_if_below(self, limit: Self, value: Self) -> Self {
        let keep = |x: float32x4_t, limit: float32x4_t, value: float32x4_t| unsafe {
            vbslq_f32(vcltq_f32(x, limit), vdupq_n_f32(0.0), value)
        };
        Self(std::array::from_fn(|i| keep(self.0[i], limit.0[i], value.0[i])))
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        unsafe {
            let four = vaddq_f32(vaddq_f32(self.0[0], self.0[2]), vaddq_f32(self.0[1], self.0[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }
}
