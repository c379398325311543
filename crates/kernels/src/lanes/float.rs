//! Sixteen f32 values, and what all instruction sets do with them.
#![allow(unsafe_code)]

/// Lanes in a group.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 values.
pub(crate) trait Lanes: Copy {
    /// All lanes `v`.
    fn splat(v: f32) -> Self;
    /// Lanes from an array.
    #[inline(always)]
    fn load(src: &[f32; LANES]) -> Self {
        // SAFETY: the array holds 16 values.
        unsafe { Self::load_at(src.as_ptr()) }
    }
    /// Lanes from `src[0..16]`.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    unsafe fn load_at(src: *const f32) -> Self;
    /// Lanes from 16 BF16 values, exactly.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    unsafe fn load_bf16_at(src: *const u16) -> Self;
    /// As [`load_bf16_at`](Self::load_bf16_at), from an array.
    #[inline(always)]
    fn load_bf16(src: &[u16; LANES]) -> Self {
        // SAFETY: the array holds 16 values.
        unsafe { Self::load_bf16_at(src.as_ptr()) }
    }
    /// Lanes to an array.
    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES]) {
        // SAFETY: the array holds 16 values.
        unsafe { self.store_at(dst.as_mut_ptr()) }
    }
    /// Lanes to `dst[0..16]`.
    ///
    /// # Safety
    /// 16 values must be writable; no alignment is needed.
    unsafe fn store_at(self, dst: *mut f32);
    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// Lane-wise sum.
    fn add(self, other: Self) -> Self;
    /// Lane-wise difference.
    fn sub(self, other: Self) -> Self;
    /// Lane-wise product.
    fn mul(self, other: Self) -> Self;
    /// Lane-wise quotient.
    fn div(self, other: Self) -> Self;
    /// Lane-wise `if other > self { other } else { self }`.
    fn max(self, other: Self) -> Self;
    /// Nearest integers, ties to even.
    fn round(self) -> Self;
    /// `self * 2^n` for integral `n` in -126..=127.
    fn scale_exp2(self, n: Self) -> Self;
    /// Lane-wise `if self < limit { 0 } else { value }`.
    fn zero_if_below(self, limit: Self, value: Self) -> Self;

    /// Prefetches the cache line of `at`, which need not be readable.
    fn prefetch<T>(_at: *const T) {}

    /// Lanes folded by halves: 16 to 8, 4, 2, 1, each time first half plus second half.
    fn sum(self) -> f32;

    /// `sum` of four groups; the same tree for each.
    fn sum4(groups: [Self; 4]) -> [f32; 4] {
        groups.map(Self::sum)
    }

    /// The largest lane.
    fn max_lane(self) -> f32 {
        let mut values = [0.0; LANES];
        self.store(&mut values);
        values[1..].iter().fold(values[0], |a, &b| if b > a { b } else { a })
    }
}

/// Lanes of up to 16 values, the rest `fill`.
#[inline(always)]
pub(crate) fn load_partial<L: Lanes>(src: &[f32], fill: f32) -> L {
    let mut full = [fill; LANES];
    full[..src.len()].copy_from_slice(src);
    L::load(&full)
}
