//! How storage types are packed for products of bytes: a [`Packing`] names a [`CodeLayout`] and
//! unpacks quant blocks into codes and scales.

use crate::isa::Isa;

/// Inputs that share a scale of activations.
pub const BLOCK: usize = 32;
/// Blocks of a span, whose scales lie together.
pub const SPAN: usize = 8;

/// How the codes and scales of a packed quant block lie in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeLayout {
    /// Signed bytes, an f16 scale per 32.
    Bytes,
    /// Four bits around 8, an f16 scale per 32.
    Four,
    /// Four bits over a minimum, f16 scale and minimum per 32.
    FourMin,
    /// Five bits around 16, an f16 scale per 32.
    Five,
    /// Five bits over a minimum, f16 scale and minimum per 32.
    FiveMin,
    /// Uneven levels of IQ4, an f16 scale per 32.
    Levels,
    /// Four-bit floats, a power of two per 32.
    Floats,
    /// Two bits over minima, byte scales and minima per 16 under two f16 factors.
    SuperTwoMin,
    /// Three bits around 4, byte scales per 16 under an f16 factor.
    SuperThree,
    /// Four bits over minima, byte scales and minima per 32 under two f16 factors.
    SuperFourMin,
    /// Five bits over minima, byte scales and minima per 32 under two f16 factors.
    SuperFiveMin,
    /// Six bits around 32, byte scales per 16 under an f16 factor.
    SuperSix,
    /// Uneven levels of IQ4, byte scales per 32 under an f16 factor.
    SuperLevels,
    /// Two bits around 1 under an f16 factor.
    Ternary,
    /// Four bits, f32 scale and zero point per 32.
    FourZero,
    /// Signed bytes, f32 scale and zero point per 32.
    BytesZero,
    /// Four-bit floats, E4M3 scales per 16 under an f32 factor of the row.
    SuperFloats,
    /// One bit: plus or minus an f16 scale per 128.
    Signs,
    /// Two bits around 1, an f16 scale per 64.
    Two,
    /// Four-bit floats, an E4M3 scale per 16.
    RunFloats,
    /// Ternary entries of eight codes that move up or down, odd scales per 32 under an f16 factor.
    Iq1S,
    /// The same with scales per 16.
    Iq1M,
    /// 256 entries of eight codes and their signs, odd scales per 32 under an f16 factor.
    Iq2Xxs,
    /// 512 entries of eight codes and their signs, an even number of them negative; odd scales per
    /// 16 under an f16 factor.
    Iq2Xs,
    /// 1024 entries of eight codes and their signs, odd scales per 16 under an f16 factor.
    Iq2S,
    /// 256 entries of four codes and their signs, odd scales per 32 under an f16 factor.
    Iq3Xxs,
    /// 512 entries of four codes and their signs, odd scales per 32 under an f16 factor.
    Iq3S,
}

/// Scales of one quant block as the file stores them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockScales {
    /// Bits of the block's scale (f16, or BF16 for powers of two), or of the factor of `scales`.
    pub scale: u16,
    /// f16 bits of the block's minimum, which is subtracted, or of the factor of `mins`.
    pub min: u16,
    /// Scales of 16 or 32 values each, in units of `scale`; E4M3 codes in units of `wide` for
    /// [`CodeLayout::SuperFloats`] and as they are for [`CodeLayout::RunFloats`]; nibbles `s` of
    /// odd scales `2 * s + 1`.
    pub scales: [i8; 16],
    /// Minima of 16 or 32 values each, in units of `min`.
    pub mins: [i8; 16],
    /// The block's scale, or the factor of `scales`, where 16 bits do not hold it.
    pub wide: f32,
    /// The code of zero, from -128 to 128, of blocks with such a scale.
    pub zero: i16,
}

/// How a type is packed: its code layout, and how its quant blocks are unpacked into it.
#[derive(Debug)]
pub struct Packing {
    /// Code layout of packed weights.
    pub code_layout: CodeLayout,
    /// Unpacks the quant blocks of a row's span, or as many as are left of it.
    pub unpack: fn(isa: Isa, blocks: &[u8], row: &mut RowSpan),
}

/// The codes and scales of a span of one row.
#[derive(Clone, Copy, Debug)]
pub struct RowSpan {
    /// The codes, unsigned except for [`CodeLayout::Bytes`] and [`CodeLayout::BytesZero`]. Where
    /// they are entries, signs are the highest bits, and the low seven bits of the first two
    /// codes of an entry are its number, low bits first. The highest bit of the first code of an
    /// entry that moves says that it moves down.
    pub codes: [u8; SPAN * BLOCK],
    /// The scales of each quant block.
    pub scales: [BlockScales; SPAN],
}

impl RowSpan {
    /// A span of zeros.
    pub const EMPTY: Self = {
        let (scales, mins) = ([0; 16], [0; 16]);
        let none = BlockScales { scale: 0, min: 0, scales, mins, wide: 0.0, zero: 0 };
        Self { codes: [0; SPAN * BLOCK], scales: [none; SPAN] }
    };
}

/// Codes of the `N` entries of eight values and their signs, negative where the bit is set, as
/// [`RowSpan::codes`] has them.
#[inline(always)]
pub(super) fn entry_codes<const N: usize>(numbers: [u16; N], signs: u8, codes: &mut [u8]) {
    // Byte `i` keeps bit `i`, and moves it to the top by addition.
    let bits = (u64::from(signs) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let mut word = (bits + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080;
    for (i, number) in numbers.into_iter().enumerate() {
        word |= u64::from(number & 127 | number >> 7 << 8) << (i * 64 / N);
    }
    codes.copy_from_slice(&word.to_le_bytes());
}

/// Makes a [`Packing`] from its code layout, the values and bytes of a quant block, and functions
/// that read the codes and the scales of a block. These are compiled for every instruction set, so
/// the functions they call must be inlined.
macro_rules! packing {
    (
        code_layout: $code_layout:expr,
        block: ($len:expr, $bytes:expr),
        codes: |$block:ident, $codes:ident| $take:expr,
        scales: |$scaled:ident| $scales:expr $(,)?
    ) => {{
        use $crate::quant::packing::RowSpan;
        #[inline(always)]
        fn block_codes($block: &[u8; $bytes], $codes: &mut [u8; $len]) {
            $take
        }
        #[inline(always)]
        fn block_scales($scaled: &[u8; $bytes]) -> $crate::quant::packing::BlockScales {
            $scales
        }
        #[inline(always)]
        #[allow(clippy::extra_unused_type_parameters)] // `isa_dispatch` wants one.
        fn body<L>(blocks: &[u8], row: &mut RowSpan) {
            let row = row.codes.as_chunks_mut().0.iter_mut().zip(&mut row.scales);
            for (block, (codes, scales)) in blocks.as_chunks().0.iter().zip(row) {
                block_codes(block, codes);
                *scales = block_scales(block);
            }
        }
        $crate::lanes::isa_dispatch! { fn unpack(blocks: &[u8], row: &mut RowSpan) = body }
        $crate::quant::packing::Packing { code_layout: $code_layout, unpack }
    }};
}
pub(super) use packing;
