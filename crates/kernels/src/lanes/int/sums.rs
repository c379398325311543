//! Sums of products of bytes, and the rounding of activations to bytes: what every instruction set
//! does.
#![allow(unsafe_code)]

use crate::lanes::float::{LANES, Lanes};
use crate::lanes::transpose::Transpose;
use crate::lanes::widen::{LanePart, Widen};

/// Work that is generic over the integer lanes.
pub(crate) trait Task {
    /// Result of the work.
    type Output;
    /// Runs the work.
    fn run<I: IntLanes>(self) -> Self::Output;
}

/// Products of weight codes with quantised activations, some rows of a group at a time.
pub(crate) trait IntRows: Copy {
    /// Lanes that the sums become.
    type Float: LanePart;
    /// Four codes of each row.
    type Codes: Copy;
    /// A sum for each row.
    type Sums: Copy;
    /// Sums of products of a few quads, for each row.
    type Part: Copy;

    /// Rows: a divisor of [`LANES`].
    const WIDTH: usize;
    /// Codes with a zero, signed ones too, are around 2 to this power if it is given, whatever
    /// their type.
    const CENTRE: Option<u32>;
    /// The largest magnitude of two products of each quad, added up, that a part holds; `None` if
    /// it holds as much as sums.
    const PART_MAX: Option<u32>;

    /// Codes from memory.
    ///
    /// # Safety
    /// `4 * WIDTH` bytes must be readable.
    unsafe fn codes_at(src: *const u8) -> Self::Codes;
    /// Codes to memory, as `codes_at` reads them.
    ///
    /// # Safety
    /// `4 * WIDTH` bytes must be writable.
    unsafe fn store_codes(codes: Self::Codes, dst: *mut u8);
    /// `code >> shift & mask`; `mask` has no more than `8 - shift` low bits.
    fn field(codes: Self::Codes, shift: u32, mask: u8) -> Self::Codes;
    /// `code << shift & mask`; the low `shift` bits of `mask` are clear.
    fn raised(codes: Self::Codes, shift: u32, mask: u8) -> Self::Codes;
    /// Bitwise or.
    fn either(a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// `word >> shift & mask` of each row's four codes as one word.
    fn bits(codes: Self::Codes, shift: u32, mask: u32) -> Self::Codes;
    /// `word << shift & mask` of the same.
    fn lifted(codes: Self::Codes, shift: u32, mask: u32) -> Self::Codes;
    /// Bitwise exclusive or.
    fn differ(a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// Words of each row from `BYTES` bytes in memory, one or two.
    ///
    /// # Safety
    /// `BYTES * WIDTH` bytes must be readable.
    unsafe fn narrow_at<const BYTES: usize>(src: *const u8) -> Self::Codes;
    /// `table[word % N]` of each row's four codes as one word; `N` is a power of two.
    fn gather<const N: usize>(table: &[u32; N], codes: Self::Codes) -> Self::Codes;
    /// `table[code]` of codes below 16.
    fn lookup(table: &[i8; 16], codes: Self::Codes) -> Self::Codes;
    /// Signed codes as `dot_signed` takes them: around the centre if there is one.
    #[inline(always)]
    fn signed(codes: Self::Codes) -> Self::Codes {
        codes
    }

    /// All sums zero.
    fn zero() -> Self::Sums;
    /// All sums the value at `src`.
    ///
    /// # Safety
    /// The value must be readable.
    unsafe fn sums_at(src: *const u32) -> Self::Sums;
    /// A part that continues `sums`, or begins from zero.
    fn open(sums: Self::Sums) -> Self::Part;
    /// Adds the products of each row's four codes, 0 to 127, with the four signed bytes of
    /// `quad`, none of them -128.
    fn dot(part: Self::Part, codes: Self::Codes, quad: i32) -> Self::Part;
    /// As `dot`, of codes that went through `signed`.
    #[inline(always)]
    fn dot_signed(part: Self::Part, codes: Self::Codes, quad: i32) -> Self::Part {
        Self::dot(part, codes, quad)
    }
    /// The sums from which `part` was opened and the products since.
    fn close(sums: Self::Sums, part: Self::Part) -> Self::Sums;
    /// The sums, rounded to nearest even.
    fn float(sums: Self::Sums) -> Self::Float;

    /// The word from which sums start whose codes are around a zero: of activations whose negated
    /// sum is `total`.
    #[inline(always)]
    fn total(total: i32) -> u32 {
        total.cast_unsigned()
    }
    /// Starts sums of codes around 2 to the power `zero`, which is a constant and the centre if
    /// there is one, of the activations that have the word at `src`. Sums that were started are
    /// read by `started` and `scaled` alone, and have at most 22 bits.
    ///
    /// # Safety
    /// The word must be readable.
    unsafe fn start_at(src: *const u32, zero: u32) -> Self::Sums;
    /// Starts sums of codes that are what they are worth.
    #[inline(always)]
    fn start() -> Self::Sums {
        Self::zero()
    }
    /// The sums since their start.
    #[inline(always)]
    fn started(sums: Self::Sums) -> Self::Float {
        Self::float(sums)
    }
    /// The same times a scale that has at most 22 significant bits, rounded to nearest even.
    #[inline(always)]
    fn scaled(sums: Self::Sums, scale: Self::Float) -> Self::Float {
        Self::float(sums).mul(scale)
    }
}

/// Products of codes of sixteen rows, and the rounding of activations.
pub(crate) trait IntLanes: IntRows<Float: Widen + Transpose> {
    /// Rows of a register tile.
    type Tile: IntRows;
    /// Most activation rows of a register tile.
    const ROWS: usize;

    /// Runs `task` in a function of its own, compiled for these lanes.
    fn enter<T: Task>(task: T) -> T::Output;

    /// The largest magnitude among the values; NaN if there is one.
    fn magnitude(a: Self::Float, b: Self::Float) -> f32 {
        let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
        a.store(&mut first);
        b.store(&mut second);
        // Magnitudes are ordered as their bits, NaN after all others.
        let mut largest = [0u32; LANES];
        for (largest, (a, b)) in largest.iter_mut().zip(first.iter().zip(&second)) {
            *largest = a.abs().to_bits().max(b.abs().to_bits());
        }
        f32::from_bits(largest.into_iter().fold(0, u32::max))
    }

    /// Values rounded to nearest even, to signed bytes, and their sum. Values outside
    /// -128..=127 become unspecified bytes.
    fn bytes(values: Self::Float, out: &mut [u32; 4]) -> i32 {
        let mut rounded = [0.0; LANES];
        values.round().store(&mut rounded);
        let mut sum = 0;
        *out = [0; 4];
        for (i, value) in rounded.into_iter().enumerate() {
            let byte = value as i8;
            sum += i32::from(byte);
            out[i / 4] |= u32::from(byte as u8) << (i % 4 * 8);
        }
        sum
    }
}

/// Parts of lanes that add products to the sums at once.
macro_rules! parts_are_sums {
    () => {
        type Part = Self::Sums;
        const PART_MAX: Option<u32> = None;

        #[inline(always)]
        fn open(sums: Self::Sums) -> Self::Sums {
            sums
        }

        #[inline(always)]
        fn close(_sums: Self::Sums, part: Self::Sums) -> Self::Sums {
            part
        }
    };
}
pub(super) use parts_are_sums;

/// A value that aligns the stack of its function to cache lines, so that no spilled register
/// crosses one. Without it the compiler aligns the stack to 16 bytes.
#[repr(align(64))]
pub(crate) struct CacheLine;

/// `IntLanes::enter` of the lanes `$lanes`: a function compiled for their instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! enter {
    ($lanes:ident) => {
        #[inline(always)]
        fn enter<T: Task>(task: T) -> T::Output {
            $crate::isa::features! { $lanes compiled
                #[inline(never)]
                fn shell<T: Task>(task: T) -> T::Output {
                    std::hint::black_box(&$crate::lanes::int::sums::CacheLine);
                    task.run::<$lanes>()
                }
            }
            // SAFETY: values of these lanes are made only where the CPU has their features.
            unsafe { shell(task) }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use enter;
