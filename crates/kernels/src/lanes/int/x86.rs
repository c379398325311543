//! The integer lanes in registers of 256 bits, with and without VNNI, and in one of 512 bits.
#![allow(unsafe_code)]
// SAFETY of every block here: these functions are reached only from shells compiled for and run
// on their instruction set (see the head of `lanes`); pointers are the caller's promise.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::sums::{IntLanes, IntRows, Task, enter, parts_are_sums};
use crate::lanes::float::LANES;
use crate::lanes::widen::LanePart;
use crate::lanes::x86 as float;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Eight rows in a register of 256 bits.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Rows;

/// The same with dot products of bytes.
#[derive(Clone, Copy)]
pub(crate) struct AvxVnniRows;

/// Sixteen rows in two registers of 256 bits.
#[derive(Clone, Copy)]
pub(crate) struct Twice<R>(PhantomData<R>);

pub(crate) type Avx2 = Twice<Avx2Rows>;
pub(crate) type AvxVnni = Twice<AvxVnniRows>;

/// What both 256-bit sets have in common.
macro_rules! common256 {
    () => {
        type Float = float::Avx2Half;
        type Codes = __m256i;
        type Sums = __m256i;
        const WIDTH: usize = LANES / 2;

        #[inline(always)]
        unsafe fn codes_at(src: *const u8) -> __m256i {
            unsafe { _mm256_loadu_si256(src.cast()) }
        }

        #[inline(always)]
        unsafe fn store_codes(codes: __m256i, dst: *mut u8) {
            unsafe { _mm256_storeu_si256(dst.cast(), codes) }
        }

        #[inline(always)]
        fn field(codes: __m256i, shift: u32, mask: u8) -> __m256i {
            unsafe {
                let shifted = _mm256_srl_epi16(codes, _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi8(mask as i8))
            }
        }

        #[inline(always)]
        fn raised(codes: __m256i, shift: u32, mask: u8) -> __m256i {
            unsafe {
                let shifted = _mm256_sll_epi16(codes, _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi8(mask as i8))
            }
        }

        #[inline(always)]
        fn either(a: __m256i, b: __m256i) -> __m256i {
            unsafe { _mm256_or_si256(a, b) }
        }

        #[inline(always)]
        fn bits(codes: __m256i, shift: u32, mask: u32) -> __m256i {
            unsafe {
                let shifted = _mm256_srl_epi32(codes, _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi32(mask.cast_signed()))
            }
        }

        #[inline(always)]
        fn lifted(codes: __m256i, shift: u32, mask: u32) -> __m256i {
            unsafe {
                let shifted = _mm256_sll_epi32(codes, _mm_cvtsi32_si128(shift as i32));
                _mm256_and_si256(shifted, _mm256_set1_epi32(mask.cast_signed()))
            }
        }

        #[inline(always)]
        fn differ(a: __m256i, b: __m256i) -> __m256i {
            unsafe { _mm256_xor_si256(a, b) }
        }

        #[inline(always)]
        unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> __m256i {
            unsafe {
                match BYTES {
                    1 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(src.cast())),
                    2 => _mm256_cvtepu16_epi32(_mm_loadu_si128(src.cast())),
                    _ => unreachable!("one or two bytes"),
                }
            }
        }

        #[inline(always)]
        fn gather<const N: usize>(table: &[u32; N], codes: __m256i) -> __m256i {
            const { assert!(N.is_power_of_two()) };
            let numbers = Self::bits(codes, 0, N as u32 - 1);
            // Numbers below `N`, of words of four bytes.
            unsafe { _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), numbers) }
        }

        #[inline(always)]
        fn lookup(table: &[i8; 16], codes: __m256i) -> __m256i {
            unsafe {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                _mm256_shuffle_epi8(table, codes)
            }
        }

        #[inline(always)]
        fn zero() -> __m256i {
            unsafe { _mm256_setzero_si256() }
        }

        #[inline(always)]
        unsafe fn sums_at(src: *const u32) -> __m256i {
            unsafe { _mm256_set1_epi32((*src).cast_signed()) }
        }

        #[inline(always)]
        fn float(sums: __m256i) -> float::Avx2Half {
            float::Avx2Half(unsafe { _mm256_cvtepi32_ps(sums) })
        }
    };
}

/// Parts are sums of neighbours in 16 bits, which never saturate.
impl IntRows for Avx2Rows {
    common256!();
    type Part = __m256i;
    const CENTRE: Option<u32> = None;
    const PART_MAX: Option<u32> = Some(i16::MAX as u32);

    #[inline(always)]
    fn open(_sums: __m256i) -> __m256i {
        Self::zero()
    }

    #[inline(always)]
    fn dot(part: __m256i, codes: __m256i, quad: i32) -> __m256i {
        unsafe { _mm256_add_epi16(part, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(quad))) }
    }

    /// The codes' signs move to the other factor.
    #[inline(always)]
    fn dot_signed(part: __m256i, codes: __m256i, quad: i32) -> __m256i {
        unsafe {
            let x = _mm256_sign_epi8(_mm256_set1_epi32(quad), codes);
            _mm256_add_epi16(part, _mm256_maddubs_epi16(_mm256_abs_epi8(codes), x))
        }
    }

    #[inline(always)]
    fn close(sums: __m256i, part: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(part, _mm256_set1_epi16(1))) }
    }

    #[inline(always)]
    unsafe fn start_at(src: *const u32, zero: u32) -> __m256i {
        unsafe { _mm256_set1_epi32((*src).cast_signed() << zero) }
    }
}

/// Sums that are floats: they start from the bits of [`ORIGIN`], whose last bit is worth one and
/// whose mantissa holds them, so that they are scaled without being converted.
macro_rules! sums_are_floats {
    ($float:ident, $as_floats:ident) => {
        const CENTRE: Option<u32> = Some(7);

        #[inline(always)]
        fn total(total: i32) -> u32 {
            (total << 7).cast_unsigned().wrapping_add(ORIGIN.to_bits())
        }

        #[inline(always)]
        unsafe fn start_at(src: *const u32, zero: u32) -> Self::Sums {
            debug_assert!(Self::CENTRE == Some(zero), "codes around the centre");
            unsafe { Self::sums_at(src) }
        }

        #[inline(always)]
        fn start() -> Self::Sums {
            unsafe { Self::sums_at(&ORIGIN.to_bits()) }
        }

        #[inline(always)]
        fn started(sums: Self::Sums) -> Self::Float {
            Self::scaled(sums, Self::Float::splat(1.0))
        }

        #[inline(always)]
        fn scaled(sums: Self::Sums, scale: Self::Float) -> Self::Float {
            // Exact: `ORIGIN` has two significant bits.
            let origin = scale.mul(Self::Float::splat(-ORIGIN));
            let sums = unsafe { $as_floats(sums) };
            float::$float(sums).mul_add(scale, origin)
        }
    };
}

const ORIGIN: f32 = (3 << 22) as f32;

impl IntRows for AvxVnniRows {
    common256!();
    parts_are_sums!();
    sums_are_floats!(Avx2Half, _mm256_castsi256_ps);

    #[inline(always)]
    fn signed(codes: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(codes, _mm256_set1_epi8(-128)) }
    }

    #[inline(always)]
    fn dot(sums: __m256i, codes: __m256i, quad: i32) -> __m256i {
        unsafe { _mm256_dpbusd_avx_epi32(sums, codes, _mm256_set1_epi32(quad)) }
    }
}

impl<R: IntRows<Float = float::Avx2Half>> IntRows for Twice<R> {
    type Float = float::Avx2;
    type Codes = [R::Codes; 2];
    type Sums = [R::Sums; 2];
    type Part = [R::Part; 2];
    const WIDTH: usize = LANES;
    const CENTRE: Option<u32> = R::CENTRE;
    const PART_MAX: Option<u32> = R::PART_MAX;

    #[inline(always)]
    unsafe fn codes_at(src: *const u8) -> Self::Codes {
        unsafe { [R::codes_at(src), R::codes_at(src.add(4 * R::WIDTH))] }
    }

    #[inline(always)]
    unsafe fn store_codes([low, high]: Self::Codes, dst: *mut u8) {
        unsafe {
            R::store_codes(low, dst);
            R::store_codes(high, dst.add(4 * R::WIDTH));
        }
    }

    #[inline(always)]
    fn field([low, high]: Self::Codes, shift: u32, mask: u8) -> Self::Codes {
        [R::field(low, shift, mask), R::field(high, shift, mask)]
    }

    #[inline(always)]
    fn raised([low, high]: Self::Codes, shift: u32, mask: u8) -> Self::Codes {
        [R::raised(low, shift, mask), R::raised(high, shift, mask)]
    }

    #[inline(always)]
    fn either(a: Self::Codes, b: Self::Codes) -> Self::Codes {
        [R::either(a[0], b[0]), R::either(a[1], b[1])]
    }

    #[inline(always)]
    fn bits([low, high]: Self::Codes, shift: u32, mask: u32) -> Self::Codes {
        [R::bits(low, shift, mask), R::bits(high, shift, mask)]
    }

    #[inline(always)]
    fn lifted([low, high]: Self::Codes, shift: u32, mask: u32) -> Self::Codes {
        [R::lifted(low, shift, mask), R::lifted(high, shift, mask)]
    }

    #[inline(always)]
    fn differ(a: Self::Codes, b: Self::Codes) -> Self::Codes {
        [R::differ(a[0], b[0]), R::differ(a[1], b[1])]
    }

    #[inline(always)]
    unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> Self::Codes {
        unsafe { [R::narrow_at::<BYTES>(src), R::narrow_at::<BYTES>(src.add(BYTES * R::WIDTH))] }
    }

    #[inline(always)]
    fn gather<const N: usize>(table: &[u32; N], [low, high]: Self::Codes) -> Self::Codes {
        [R::gather(table, low), R::gather(table, high)]
    }

    #[inline(always)]
    fn lookup(table: &[i8; 16], [low, high]: Self::Codes) -> Self::Codes {
        [R::lookup(table, low), R::lookup(table, high)]
    }

    #[inline(always)]
    fn signed([low, high]: Self::Codes) -> Self::Codes {
        [R::signed(low), R::signed(high)]
    }

    #[inline(always)]
    fn zero() -> Self::Sums {
        [R::zero(); 2]
    }

    #[inline(always)]
    unsafe fn sums_at(src: *const u32) -> Self::Sums {
        [unsafe { R::sums_at(src) }; 2]
    }

    #[inline(always)]
    fn open(sums: Self::Sums) -> Self::Part {
        [R::open(sums[0]), R::open(sums[1])]
    }

    #[inline(always)]
    fn dot(part: Self::Part, codes: Self::Codes, quad: i32) -> Self::Part {
        [R::dot(part[0], codes[0], quad), R::dot(part[1], codes[1], quad)]
    }

    #[inline(always)]
    fn dot_signed(part: Self::Part, codes: Self::Codes, quad: i32) -> Self::Part {
        [R::dot_signed(part[0], codes[0], quad), R::dot_signed(part[1], codes[1], quad)]
    }

    #[inline(always)]
    fn close(sums: Self::Sums, part: Self::Part) -> Self::Sums {
        [R::close(sums[0], part[0]), R::close(sums[1], part[1])]
    }

    #[inline(always)]
    fn float(sums: Self::Sums) -> float::Avx2 {
        float::Avx2::join(R::float(sums[0]), R::float(sums[1]))
    }

    #[inline(always)]
    fn total(total: i32) -> u32 {
        R::total(total)
    }

    #[inline(always)]
    unsafe fn start_at(src: *const u32, zero: u32) -> Self::Sums {
        [unsafe { R::start_at(src, zero) }; 2]
    }

    #[inline(always)]
    fn start() -> Self::Sums {
        [R::start(); 2]
    }

    #[inline(always)]
    fn started(sums: Self::Sums) -> float::Avx2 {
        float::Avx2::join(R::started(sums[0]), R::started(sums[1]))
    }

    #[inline(always)]
    fn scaled(sums: Self::Sums, scale: float::Avx2) -> float::Avx2 {
        let [low, high] = scale.halves().map(float::Avx2Half);
        float::Avx2::join(R::scaled(sums[0], low), R::scaled(sums[1], high))
    }
}

/// The sixteen rows of a 256-bit set, with the rows of weights and of activations that a register
/// tile has.
macro_rules! lanes256 {
    ($lanes:ident, $tile:ty, $rows:literal) => {
        impl IntLanes for $lanes {
            type Tile = $tile;
            const ROWS: usize = $rows;

            enter!($lanes);

            #[inline(always)]
            fn magnitude(a: float::Avx2, b: float::Avx2) -> f32 {
                magnitude256(a, b)
            }

            #[inline(always)]
            fn bytes(values: float::Avx2, out: &mut [u32; 4]) -> i32 {
                bytes256(values, out)
            }
        }
    };
}

// A product takes so many operations with AVX2 that sums should not leave registers; with VNNI it
// is one, and unpacking codes for eight weight rows at a time would weigh more.
lanes256!(Avx2, Avx2Rows, 6);
lanes256!(AvxVnni, AvxVnni, 4);

#[inline(always)]
fn magnitude256(a: float::Avx2, b: float::Avx2) -> f32 {
    unsafe {
        let mut largest = _mm256_setzero_si256();
        for values in [a.halves(), b.halves()].as_flattened() {
            let bits = _mm256_castps_si256(*values);
            let magnitudes = _mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX));
            largest = _mm256_max_epu32(largest, magnitudes);
        }
        let four =
            _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256::<1>(largest));
        let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
        f32::from_bits(_mm_cvtsi128_si32(one).cast_unsigned())
    }
}

#[inline(always)]
fn bytes256(values: float::Avx2, out: &mut [u32; 4]) -> i32 {
    unsafe {
        let [low, high] = values.halves();
        let words = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
        let (low, high) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        store_bytes(_mm_packs_epi16(low, high), out)
    }
}

/// Stores sixteen signed bytes and returns their sum.
#[inline(always)]
unsafe fn store_bytes(bytes: __m128i, out: &mut [u32; 4]) -> i32 {
    unsafe {
        _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        // Sums of unsigned bytes, eight each: every byte is 128 too large.
        let sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
        _mm_cvtsi128_si32(sums) + _mm_extract_epi32::<2>(sums) - 16 * 128
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512Vnni;

impl IntRows for Avx512Vnni {
    type Float = float::Avx512;
    type Codes = __m512i;
    type Sums = __m512i;
    const WIDTH: usize = LANES;

    parts_are_sums!();
    sums_are_floats!(Avx512, _mm512_castsi512_ps);

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
    fn bits(codes: __m512i, shift: u32, mask: u32) -> __m512i {
        unsafe {
            let shifted = _mm512_srl_epi32(codes, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi32(mask.cast_signed()))
        }
    }

    #[inline(always)]
    fn lifted(codes: __m512i, shift: u32, mask: u32) -> __m512i {
        unsafe {
            let shifted = _mm512_sll_epi32(codes, _mm_cvtsi32_si128(shift as i32));
            _mm512_and_si512(shifted, _mm512_set1_epi32(mask.cast_signed()))
        }
    }

    #[inline(always)]
    fn differ(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> __m512i {
        unsafe {
            match BYTES {
                1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(src.cast())),
                2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(src.cast())),
                _ => unreachable!("one or two bytes"),
            }
        }
    }

    #[inline(always)]
    fn gather<const N: usize>(table: &[u32; N], codes: __m512i) -> __m512i {
        const { assert!(N.is_power_of_two()) };
        let numbers = Self::bits(codes, 0, N as u32 - 1);
        // Numbers below `N`, of words of four bytes.
        unsafe { _mm512_i32gather_epi32::<4>(numbers, table.as_ptr().cast()) }
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
    unsafe fn sums_at(src: *const u32) -> __m512i {
        unsafe { _mm512_set1_epi32((*src).cast_signed()) }
    }

    #[inline(always)]
    fn dot(sums: __m512i, codes: __m512i, quad: i32) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(quad)) }
    }

    #[inline(always)]
    fn float(sums: __m512i) -> float::Avx512 {
        float::Avx512(unsafe { _mm512_cvtepi32_ps(sums) })
    }
}

impl IntLanes for Avx512Vnni {
    type Tile = Self;
    const ROWS: usize = 12;

    enter!(Avx512Vnni);

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
        unsafe { store_bytes(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values.0)), out) }
    }
}
