//! The lanes in AVX2 (two registers) and AVX-512 (one).
#![allow(unsafe_code)]
// SAFETY of every block here: values of these types are made only inside functions compiled for
// and run on their instruction set (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use crate::lanes::float::Lanes;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(super) __m256, pub(super) __m256);

/// Eight lanes of a group.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Half(pub(crate) __m256);

impl Avx2 {
    /// Lanes of both halves.
    #[inline(always)]
    pub(crate) fn join(low: Avx2Half, high: Avx2Half) -> Self {
        Self(low.0, high.0)
    }

    /// The registers of the lower and the upper half.
    #[inline(always)]
    pub(crate) fn halves(self) -> [__m256; 2] {
        [self.0, self.1]
    }
}

/// An operation of two values: `$intrinsic` on each of their registers.
macro_rules! arithmetic {
    ([$($register:tt),*] $name:ident $intrinsic:ident) => {
        #[inline(always)]
        fn $name(self, other: Self) -> Self {
            Self($(unsafe { $intrinsic(self.$register, other.$register) }),*)
        }
    };
}

impl Lanes for Avx2 {
    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn splat(v: f32) -> Self {
        let all = unsafe { _mm256_set1_ps(v) };
        Self(all, all)
    }

    #[inline(always)]
    unsafe fn load_at(src: *const f32) -> Self {
        unsafe { Self(_mm256_loadu_ps(src), _mm256_loadu_ps(src.add(8))) }
    }

    #[inline(always)]
    unsafe fn load_bf16_at(src: *const u16) -> Self {
        unsafe { Self(widen8(src), widen8(src.add(8))) }
    }

    #[inline(always)]
    unsafe fn store_at(self, dst: *mut f32) {
        unsafe {
            _mm256_storeu_ps(dst, self.0);
            _mm256_storeu_ps(dst.add(8), self.1);
        }
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { Self(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
    }

    arithmetic!([0, 1] add _mm256_add_ps);
    arithmetic!([0, 1] sub _mm256_sub_ps);
    arithmetic!([0, 1] mul _mm256_mul_ps);
    arithmetic!([0, 1] div _mm256_div_ps);

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // The second operand is returned where they compare equal or unordered.
        unsafe { Self(_mm256_max_ps(other.0, self.0), _mm256_max_ps(other.1, self.1)) }
    }

    #[inline(always)]
    fn round(self) -> Self {
        const EVEN: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        unsafe { Self(_mm256_round_ps::<EVEN>(self.0), _mm256_round_ps::<EVEN>(self.1)) }
    }

    #[inline(always)]
    fn scale_exp2(self, n: Self) -> Self {
        unsafe { Self(_mm256_mul_ps(self.0, power8(n.0)), _mm256_mul_ps(self.1, power8(n.1))) }
    }

    #[inline(always)]
    fn zero_if_below(self, limit: Self, value: Self) -> Self {
        unsafe {
            let below = (
                _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, limit.0),
                _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, limit.1),
            );
            Self(_mm256_andnot_ps(below.0, value.0), _mm256_andnot_ps(below.1, value.1))
        }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        unsafe { sum8(_mm256_add_ps(self.0, self.1)) }
    }

    #[inline(always)]
    fn sum4(g: [Self; 4]) -> [f32; 4] {
        unsafe {
            sum8x4([
                _mm256_add_ps(g[0].0, g[0].1),
                _mm256_add_ps(g[1].0, g[1].1),
                _mm256_add_ps(g[2].0, g[2].1),
                _mm256_add_ps(g[3].0, g[3].1),
            ])
        }
    }
}

// Functions, not closures: a closure is compiled without the instruction set and is not always
// inlined back into the code that has it.

/// Eight BF16 values as f32.
#[inline(always)]
pub(super) unsafe fn widen8(src: *const u16) -> __m256 {
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(src.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

/// 2^n of integral n.
#[inline(always)]
unsafe fn power8(n: __m256) -> __m256 {
    unsafe {
        let biased = _mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
    }
}

#[inline(always)]
unsafe fn halves(v: __m256) -> __m128 {
    unsafe { _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v)) }
}

#[inline(always)]
unsafe fn sum8(v: __m256) -> f32 {
    unsafe {
        let four = halves(v);
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// Four `sum8` at once: a 4x4 transpose turns the last two folds into vector adds.
#[inline(always)]
unsafe fn sum8x4(v: [__m256; 4]) -> [f32; 4] {
    unsafe {
        let (a, b, c, d) = (halves(v[0]), halves(v[1]), halves(v[2]), halves(v[3]));
        let (ab_lo, ab_hi) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let (cd_lo, cd_hi) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        // Element i of every group, i = 0..4.
        let (e0, e1) = (_mm_movelh_ps(ab_lo, cd_lo), _mm_movehl_ps(cd_lo, ab_lo));
        let (e2, e3) = (_mm_movelh_ps(ab_hi, cd_hi), _mm_movehl_ps(cd_hi, ab_hi));
        let sums = _mm_add_ps(_mm_add_ps(e0, e2), _mm_add_ps(e1, e3));
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), sums);
        out
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(crate) __m512);

impl Lanes for Avx512 {
    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn splat(v: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(v) })
    }

    #[inline(always)]
    unsafe fn load_at(src: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(src) })
    }

    #[inline(always)]
    unsafe fn load_bf16_at(src: *const u16) -> Self {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(src.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }

    #[inline(always)]
    unsafe fn store_at(self, dst: *mut f32) {
        unsafe { _mm512_storeu_ps(dst, self.0) }
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }

    arithmetic!([0] add _mm512_add_ps);
    arithmetic!([0] sub _mm512_sub_ps);
    arithmetic!([0] mul _mm512_mul_ps);
    arithmetic!([0] div _mm512_div_ps);

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(unsafe { _mm512_max_ps(other.0, self.0) })
    }

    #[inline(always)]
    fn round(self) -> Self {
        const EVEN: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        Self(unsafe { _mm512_roundscale_ps::<EVEN>(self.0) })
    }

    #[inline(always)]
    fn scale_exp2(self, n: Self) -> Self {
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }

    #[inline(always)]
    fn zero_if_below(self, limit: Self, value: Self) -> Self {
        unsafe {
            let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, limit.0);
            Self(_mm512_maskz_mov_ps(!below, value.0))
        }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        unsafe { sum8(fold512(self.0)) }
    }

    #[inline(always)]
    fn sum4(g: [Self; 4]) -> [f32; 4] {
        unsafe { sum8x4([fold512(g[0].0), fold512(g[1].0), fold512(g[2].0), fold512(g[3].0)]) }
    }
}

#[inline(always)]
unsafe fn fold512(v: __m512) -> __m256 {
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
}
