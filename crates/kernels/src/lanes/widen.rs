//! Sixteen lanes from narrower stored values, exactly.
#![allow(unsafe_code)]
// SAFETY of every block here: values of an instruction set's type are made only inside functions
// compiled for it (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::float::{LANES, Lanes};
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::scalar::Scalar;
use half::f16;
#[cfg(target_arch = "aarch64")]
use half::slice::HalfFloatSliceExt;

/// Some lanes of a group: all that products with packed weights need.
pub(crate) trait LanePart: Copy {
    /// All lanes `v`.
    fn splat(v: f32) -> Self;
    /// Lanes from f32 values.
    ///
    /// # Safety
    /// As many values as there are lanes must be readable; no alignment is needed. This holds for
    /// the other loads too.
    unsafe fn load_at(src: *const f32) -> Self;
    /// As [`Lanes::load_bf16_at`].
    ///
    /// # Safety
    /// As `load_at`.
    unsafe fn load_bf16_at(src: *const u16) -> Self;
    /// As [`Widen::load_f16_at`].
    ///
    /// # Safety
    /// As `load_at`.
    unsafe fn load_f16_at(src: *const u16) -> Self;
    /// As [`Widen::load_i8_at`].
    ///
    /// # Safety
    /// As `load_at`.
    unsafe fn load_i8_at(src: *const i8) -> Self;
    /// As [`Widen::load_e4m3_at`].
    ///
    /// # Safety
    /// As `load_at`.
    unsafe fn load_e4m3_at(src: *const u8) -> Self;
    /// As [`Widen::load_nibbles_at`].
    ///
    /// # Safety
    /// As `load_at`.
    unsafe fn load_nibbles_at(src: *const u8, shift: u32) -> Self;
    /// Lanes to memory.
    ///
    /// # Safety
    /// As many values as there are lanes must be writable; no alignment is needed.
    unsafe fn store_at(self, dst: *mut f32);
    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// Lane-wise product.
    fn mul(self, other: Self) -> Self;
    /// Prefetches the cache line of `at`, which need not be readable.
    fn prefetch<T>(at: *const T);
}

/// Passes a function of `LanePart` on to the trait of sixteen lanes that has it.
macro_rules! whole_lanes {
    ($($trait:ident $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?;)*) => { $(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) $(-> $out)? {
            unsafe { <Self as $trait>::$name($($arg),*) }
        }
    )* };
}

impl<L: Widen> LanePart for L {
    whole_lanes! {
        Lanes load_at(src: *const f32) -> Self;
        Lanes load_bf16_at(src: *const u16) -> Self;
        Widen load_f16_at(src: *const u16) -> Self;
        Widen load_i8_at(src: *const i8) -> Self;
        Widen load_e4m3_at(src: *const u8) -> Self;
        Widen load_nibbles_at(src: *const u8, shift: u32) -> Self;
    }

    #[inline(always)]
    unsafe fn store_at(self, dst: *mut f32) {
        unsafe { Lanes::store_at(self, dst) }
    }

    #[inline(always)]
    fn splat(v: f32) -> Self {
        <Self as Lanes>::splat(v)
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        Lanes::mul_add(self, b, c)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Lanes::mul(self, other)
    }

    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        <Self as Lanes>::prefetch(at);
    }
}

/// Plain Rust and lanes that are compiled for each instruction set. The bits are those of Rust's
/// operators and of the lanes' operations: nothing is fused or reordered.
pub(crate) trait Kernel {
    /// Runs the kernel with the lanes `L` of the instruction set. `#[inline(always)]`, like all
    /// that it calls, or it is compiled for none.
    fn run<L: Widen>(self);
}

/// Loads that widen.
pub(crate) trait Widen: Lanes {
    /// Runs `kernel` in a function of its own, compiled for these lanes.
    fn enter<K: Kernel>(kernel: K);

    /// Lanes of the low and of the high halves of 16 pairs of BF16 values.
    ///
    /// # Safety
    /// 16 pairs must be readable; no alignment is needed.
    unsafe fn load_bf16_pairs_at(src: *const u32) -> (Self, Self);

    /// Lanes of the first and of the second of 16 pairs of E4M3 codes, exactly, NaN as NaN.
    ///
    /// # Safety
    /// 16 pairs must be readable; no alignment is needed.
    #[inline(always)]
    unsafe fn load_e4m3_pairs_at(src: *const [u8; 2]) -> (Self, Self) {
        let pairs = unsafe { src.cast::<[[u8; 2]; LANES]>().read_unaligned() };
        let value = |code: u8| if code & 0x7f == 0x7f { f32::NAN } else { e4m3(code) };
        (
            Self::load(&pairs.map(|pair| value(pair[0]))),
            Self::load(&pairs.map(|pair| value(pair[1]))),
        )
    }

    /// Lanes from 16 F16 values.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    #[inline(always)]
    unsafe fn load_f16_at(src: *const u16) -> Self {
        let bits = unsafe { src.cast::<[u16; LANES]>().read_unaligned() };
        let mut values = [0.0; LANES];
        for (value, bits) in values.iter_mut().zip(bits) {
            *value = f16::from_bits(bits).to_f32();
        }
        Self::load(&values)
    }

    /// Lanes from 16 signed bytes.
    ///
    /// # Safety
    /// 16 values must be readable.
    #[inline(always)]
    unsafe fn load_i8_at(src: *const i8) -> Self {
        let bytes = unsafe { src.cast::<[i8; LANES]>().read_unaligned() };
        let mut values = [0.0; LANES];
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = f32::from(byte);
        }
        Self::load(&values)
    }

    /// Lanes from an array of signed bytes.
    #[inline(always)]
    fn load_i8(src: &[i8; LANES]) -> Self {
        // SAFETY: the array holds 16 values.
        unsafe { Self::load_i8_at(src.as_ptr()) }
    }

    /// Lanes from 16 E4M3 codes, exactly; those of NaN as ±480, the number that their bits would be
    /// otherwise.
    ///
    /// # Safety
    /// 16 codes must be readable.
    #[inline(always)]
    unsafe fn load_e4m3_at(src: *const u8) -> Self {
        let codes = unsafe { src.cast::<[u8; LANES]>().read_unaligned() };
        Self::load(&codes.map(e4m3))
    }

    /// Lanes from a nibble of each of 16 bytes: the low ones where `shift` is 0, the high ones
    /// where it is 4.
    ///
    /// # Safety
    /// 16 bytes must be readable.
    #[inline(always)]
    unsafe fn load_nibbles_at(src: *const u8, shift: u32) -> Self {
        let bytes = unsafe { src.cast::<[u8; LANES]>().read_unaligned() };
        let mut values = [0.0; LANES];
        for (value, byte) in values.iter_mut().zip(bytes) {
            *value = f32::from(byte >> shift & 15);
        }
        Self::load(&values)
    }
}

/// The value of an E4M3 code; those of NaN are ±480.
#[inline(always)]
pub(crate) fn e4m3(code: u8) -> f32 {
    let code = u32::from(code);
    // The same exponent and mantissa in f32 are worth 2^-120 as much.
    let unit = f32::from_bits((120 + 127) << 23);
    f32::from_bits((code & 0x80) << 24 | (code & 0x7f) << 20) * unit
}

/// The values of the BF16 bytes `from`.
#[inline(always)]
pub(crate) fn bf16_values<L: Widen>(from: &[u8], to: &mut [f32]) {
    assert!(from.len() == 2 * to.len(), "two bytes a value");
    let (whole, rest) = to.as_chunks_mut::<LANES>();
    let (from, last) = from.as_chunks::<{ 2 * LANES }>();
    for (from, to) in from.iter().zip(whole) {
        // SAFETY: the array holds 16 values.
        unsafe { L::load_bf16_at(from.as_ptr().cast()) }.store(to);
    }
    for (from, to) in last.as_chunks().0.iter().zip(rest) {
        *to = f32::from_bits(u32::from(u16::from_le_bytes(*from)) << 16);
    }
}

/// The values of the F16 bytes `from`.
#[inline(always)]
pub(crate) fn f16_values<L: Widen>(from: &[u8], to: &mut [f32]) {
    assert!(from.len() == 2 * to.len(), "two bytes a value");
    let (whole, rest) = to.as_chunks_mut::<LANES>();
    let (from, last) = from.as_chunks::<{ 2 * LANES }>();
    for (from, to) in from.iter().zip(whole) {
        // SAFETY: the array holds 16 values.
        unsafe { L::load_f16_at(from.as_ptr().cast()) }.store(to);
    }
    for (from, to) in last.as_chunks().0.iter().zip(rest) {
        *to = f16::from_le_bytes(*from).to_f32();
    }
}

/// The values of the E4M3 codes `from`, none of them NaN, times `scale`.
#[inline(always)]
pub(crate) fn e4m3_values<L: Widen>(from: &[u8], scale: f32, to: &mut [f32]) {
    assert!(from.len() == to.len(), "a byte a value");
    let (whole, rest) = to.as_chunks_mut::<LANES>();
    let (from, last) = from.as_chunks::<LANES>();
    for (from, to) in from.iter().zip(whole) {
        // SAFETY: the array holds 16 codes.
        unsafe { L::load_e4m3_at(from.as_ptr()) }.mul(L::splat(scale)).store(to);
    }
    for (from, to) in last.iter().zip(rest) {
        *to = e4m3(*from) * scale;
    }
}

/// Both halves of 16 pairs by arithmetic on whole arrays.
#[inline(always)]
unsafe fn bf16_pairs<L: Lanes>(src: *const u32) -> (L, L) {
    let pairs = unsafe { src.cast::<[u32; LANES]>().read_unaligned() };
    let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
    for (i, pair) in pairs.into_iter().enumerate() {
        low[i] = f32::from_bits(pair << 16);
        high[i] = f32::from_bits(pair & 0xffff_0000);
    }
    (L::load(&low), L::load(&high))
}

/// `Widen::enter` of the lanes `$lanes`: a function compiled for their instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! enter {
    ($lanes:ident) => {
        #[inline(always)]
        fn enter<K: Kernel>(kernel: K) {
            $crate::isa::features! { $lanes compiled
                #[inline(never)]
                fn shell<K: Kernel>(kernel: K) { kernel.run::<$lanes>(); }
            }
            // SAFETY: values of these lanes are made only where the CPU has their features.
            unsafe { shell(kernel) }
        }
    };
}

impl Widen for Scalar {
    fn enter<K: Kernel>(kernel: K) {
        kernel.run::<Self>();
    }

    unsafe fn load_bf16_pairs_at(src: *const u32) -> (Self, Self) {
        unsafe { bf16_pairs(src) }
    }
}

#[cfg(target_arch = "aarch64")]
impl Widen for Neon {
    enter!(Neon);

    #[inline(always)]
    unsafe fn load_f16_at(src: *const u16) -> Self {
        let bits = unsafe { src.cast::<[u16; LANES]>().read_unaligned() };
        let mut values = [0.0; LANES];
        bits.map(f16::from_bits).convert_to_f32_slice(&mut values);
        Self::load(&values)
    }

    #[inline(always)]
    unsafe fn load_bf16_pairs_at(src: *const u32) -> (Self, Self) {
        unsafe { bf16_pairs(src) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::lanes::float::LANES;
    use crate::lanes::widen::{Kernel, LanePart, Widen};
    use crate::lanes::x86::{Avx2, Avx2Half, Avx512, widen8};
    use std::arch::x86_64::*;

    /// Loads of both halves.
    macro_rules! both_halves {
        ($($name:ident($ty:ty);)*) => { $(
            #[inline(always)]
            unsafe fn $name(src: *const $ty) -> Self {
                unsafe { Self(Avx2Half::$name(src).0, Avx2Half::$name(src.add(8)).0) }
            }
        )* };
    }

    impl Widen for Avx2 {
        enter!(Avx2);

        both_halves! {
            load_f16_at(u16);
            load_i8_at(i8);
            load_e4m3_at(u8);
        }

        #[inline(always)]
        unsafe fn load_nibbles_at(src: *const u8, shift: u32) -> Self {
            unsafe {
                let high = Avx2Half::load_nibbles_at(src.add(8), shift);
                Self(Avx2Half::load_nibbles_at(src, shift).0, high.0)
            }
        }

        #[inline(always)]
        unsafe fn load_e4m3_pairs_at(src: *const [u8; 2]) -> (Self, Self) {
            unsafe {
                let (even, odd) = e4m3_pairs_as_f16(_mm256_loadu_si256(src.cast()));
                (e4m3_of_f16(even), e4m3_of_f16(odd))
            }
        }

        #[inline(always)]
        unsafe fn load_bf16_pairs_at(src: *const u32) -> (Self, Self) {
            unsafe {
                let a = _mm256_loadu_si256(src.cast());
                let b = _mm256_loadu_si256(src.add(LANES / 2).cast());
                (Self(low8(a), low8(b)), Self(high8(a), high8(b)))
            }
        }
    }

    impl LanePart for Avx2Half {
        #[inline(always)]
        fn splat(v: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(v) })
        }

        #[inline(always)]
        unsafe fn load_at(src: *const f32) -> Self {
            Self(unsafe { _mm256_loadu_ps(src) })
        }

        #[inline(always)]
        unsafe fn load_bf16_at(src: *const u16) -> Self {
            Self(unsafe { widen8(src) })
        }

        #[inline(always)]
        unsafe fn load_f16_at(src: *const u16) -> Self {
            Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(src.cast())) })
        }

        #[inline(always)]
        unsafe fn load_i8_at(src: *const i8) -> Self {
            let wide = unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(src.cast())) };
            Self(unsafe { _mm256_cvtepi32_ps(wide) })
        }

        #[inline(always)]
        unsafe fn load_e4m3_at(src: *const u8) -> Self {
            unsafe { half_of_f16(_mm256_castsi256_si128(e4m3_as_f16(_mm_loadl_epi64(src.cast())))) }
        }

        #[inline(always)]
        unsafe fn load_nibbles_at(src: *const u8, shift: u32) -> Self {
            unsafe {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(src.cast()));
                let shifted = _mm256_srl_epi32(wide, _mm_cvtsi32_si128(shift as i32));
                Self(_mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15))))
            }
        }

        #[inline(always)]
        unsafe fn store_at(self, dst: *mut f32) {
            unsafe { _mm256_storeu_ps(dst, self.0) }
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
        }

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(unsafe { _mm256_mul_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn prefetch<T>(at: *const T) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    impl Widen for Avx512 {
        enter!(Avx512);

        #[inline(always)]
        unsafe fn load_e4m3_pairs_at(src: *const [u8; 2]) -> (Self, Self) {
            unsafe {
                let (even, odd) = e4m3_pairs_as_f16(_mm256_loadu_si256(src.cast()));
                let unit = _mm512_set1_ps(E4M3_OVER_F16);
                (
                    Self(_mm512_mul_ps(_mm512_cvtph_ps(even), unit)),
                    Self(_mm512_mul_ps(_mm512_cvtph_ps(odd), unit)),
                )
            }
        }

        #[inline(always)]
        unsafe fn load_bf16_pairs_at(src: *const u32) -> (Self, Self) {
            unsafe {
                let pairs = _mm512_loadu_si512(src.cast());
                let high = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                let low = _mm512_slli_epi32::<16>(pairs);
                (Self(_mm512_castsi512_ps(low)), Self(_mm512_castsi512_ps(high)))
            }
        }

        #[inline(always)]
        unsafe fn load_f16_at(src: *const u16) -> Self {
            unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(src.cast()))) }
        }

        #[inline(always)]
        unsafe fn load_i8_at(src: *const i8) -> Self {
            unsafe { signed16(_mm_loadu_si128(src.cast())) }
        }

        #[inline(always)]
        unsafe fn load_e4m3_at(src: *const u8) -> Self {
            unsafe {
                let values = _mm512_cvtph_ps(e4m3_as_f16(_mm_loadu_si128(src.cast())));
                Self(_mm512_mul_ps(values, _mm512_set1_ps(E4M3_OVER_F16)))
            }
        }

        #[inline(always)]
        unsafe fn load_nibbles_at(src: *const u8, shift: u32) -> Self {
            unsafe {
                let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(src.cast()));
                let shifted = _mm512_srl_epi32(wide, _mm_cvtsi32_si128(shift as i32));
                Self(_mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(15))))
            }
        }
    }

    /// What exponents of E4M3 are worth more than the same bits as exponents of f16.
    const E4M3_OVER_F16: f32 = 256.0;

    /// The values of E4M3 codes that [`e4m3_as_f16`] or [`e4m3_pairs_as_f16`] made f16.
    #[inline(always)]
    unsafe fn e4m3_of_f16(bits: __m256i) -> Avx2 {
        unsafe {
            let high = _mm256_extracti128_si256::<1>(bits);
            Avx2::join(half_of_f16(_mm256_castsi256_si128(bits)), half_of_f16(high))
        }
    }

    /// The same of eight codes.
    #[inline(always)]
    unsafe fn half_of_f16(bits: __m128i) -> Avx2Half {
        let unit = unsafe { _mm256_set1_ps(E4M3_OVER_F16) };
        Avx2Half(unsafe { _mm256_mul_ps(_mm256_cvtph_ps(bits), unit) })
    }

    /// The first and the second of 16 pairs of E4M3 codes as f16 with the same exponent and
    /// mantissa; NaN as NaN.
    #[inline(always)]
    unsafe fn e4m3_pairs_as_f16(pairs: __m256i) -> (__m256i, __m256i) {
        unsafe {
            let top = _mm256_set1_epi16(0x7f << 7);
            let sign = _mm256_set1_epi16(i16::MIN);
            let first = _mm256_slli_epi16::<8>(pairs);
            let mut out = [first, pairs];
            for bits in &mut out {
                let magnitude = _mm256_and_si256(_mm256_srli_epi16::<1>(*bits), top);
                // All bits of NaN.
                let nan = _mm256_cmpeq_epi16(magnitude, top);
                let value = _mm256_or_si256(magnitude, _mm256_and_si256(*bits, sign));
                *bits = _mm256_or_si256(value, nan);
            }
            (out[0], out[1])
        }
    }

    /// E4M3 codes as f16 with the same exponent and mantissa.
    #[inline(always)]
    unsafe fn e4m3_as_f16(codes: __m128i) -> __m256i {
        unsafe {
            let codes = _mm256_cvtepu8_epi16(codes);
            let magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
            let sign = _mm256_and_si256(_mm256_slli_epi16::<8>(codes), _mm256_set1_epi16(i16::MIN));
            _mm256_or_si256(_mm256_slli_epi16::<7>(magnitude), sign)
        }
    }

    #[inline(always)]
    unsafe fn low8(pairs: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)) }
    }

    #[inline(always)]
    unsafe fn high8(pairs: __m256i) -> __m256 {
        unsafe {
            let mask = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            _mm256_castsi256_ps(_mm256_and_si256(pairs, mask))
        }
    }

    #[inline(always)]
    unsafe fn signed16(bytes: __m128i) -> Avx512 {
        unsafe { Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))) }
    }
}

#[cfg(test)]
mod tests;
