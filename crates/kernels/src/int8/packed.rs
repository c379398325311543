//! Weights packed for integer products: sixteen rows side by side, every code in as many bits as
//! the file spends on it.
//!
//! A group of sixteen rows is one stream: for each span of eight blocks of 32 inputs the scales,
//! then the codes of each block. Codes lie in words of four inputs (`quads`), the same word of all sixteen rows together, so
//! that one load feeds sixteen sums; which bits of a word belong to which quad is the business of
//! the form's planes ([`super::forms`]).

use super::forms::{self, Planes, SPAN, Scales};
use super::{BLOCK, GROUP};
use crate::quant::QuantType;

/// Which packed layout and kernel a type of weights takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
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
}

/// Scales of one quant block as the file has them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockScales {
    /// Bits of the block's scale (f16, or BF16 for powers of two), or of the factor of `scales`.
    pub scale: u16,
    /// f16 bits of the block's minimum, which is subtracted, or of the factor of `mins`.
    pub min: u16,
    /// Scales of 16 or 32 values each, in units of `scale`.
    pub scales: [i8; 16],
    /// Minima of 16 or 32 values each, in units of `min`.
    pub mins: [i8; 16],
}

/// How a type's blocks are taken apart to be packed.
#[derive(Debug)]
pub struct Packing {
    /// Layout and kernel.
    pub form: Form,
    /// The codes of one quant block, as many as it has values: unsigned, but for
    /// [`Form::Bytes`].
    pub codes: fn(block: &[u8], codes: &mut [u8]),
    /// The scales of one quant block.
    pub scales: fn(block: &[u8]) -> BlockScales,
}

/// Packed weights `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Layout.
    pub form: Form,
    /// Outputs of the product.
    pub rows: usize,
    /// Inputs of the product.
    pub cols: usize,
    /// `Packed::bytes_for(form, rows, cols)` bytes, aligned to 64.
    pub bytes: &'a [u8],
}

impl Packed<'_> {
    /// Bytes that weights of this form and shape take.
    pub fn bytes_for(form: Form, rows: usize, cols: usize) -> usize {
        rows.div_ceil(GROUP) * group_bytes(form, cols)
    }
}

/// Bytes of a group of sixteen rows.
pub(super) fn group_bytes(form: Form, cols: usize) -> usize {
    let blocks = cols / BLOCK;
    forms::with_form!(form, P, S => {
        blocks.div_ceil(SPAN) * S::BYTES + blocks * code_bytes::<P>()
    })
}

/// Bytes of the codes of a block of sixteen rows.
pub(super) const fn code_bytes<P: Planes>() -> usize {
    P::WORDS * 4 * GROUP
}

/// Packs sixteen rows, or as many as are left, of a matrix with rows of `cols` values into one
/// group: `rows` holds their bytes as the file has them, `group` is overwritten.
///
/// # Panics
/// If the type has no packing or the lengths do not fit.
pub fn pack(ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
    let packing = ty.packing.expect("only types with a packing are packed");
    let row_bytes = ty.bytes_for(cols).expect("rows of whole quant blocks");
    assert!(cols > 0 && cols.is_multiple_of(BLOCK), "rows of whole blocks");
    assert!(rows.len().is_multiple_of(row_bytes) && rows.len() <= GROUP * row_bytes, "whole rows");
    assert_eq!(group.len(), group_bytes(packing.form, cols), "bytes of a group");
    if rows.len() < GROUP * row_bytes {
        group.fill(0);
    }
    forms::with_form!(packing.form, P, S => {
        let quant_blocks = SPAN * BLOCK / ty.block_len;
        let spans = group.chunks_mut(S::BYTES + SPAN * code_bytes::<P>());
        for (index, span) in spans.enumerate() {
            let (scales, codes) = span.split_at_mut(S::BYTES);
            for (row, bytes) in rows.chunks_exact(row_bytes).enumerate() {
                let blocks = bytes.chunks_exact(ty.block_bytes).skip(index * quant_blocks);
                for (block, bytes) in blocks.take(quant_blocks).enumerate() {
                    S::store(&(packing.scales)(bytes), block, row, scales);
                    let inputs = ty.block_len / BLOCK;
                    let out = &mut codes[block * inputs * code_bytes::<P>()..];
                    pack_codes::<P>(packing, (ty.block_len, bytes), row, out);
                }
            }
        }
    });
}

/// The codes of one quant block into the words of its row.
fn pack_codes<P: Planes>(
    packing: &Packing,
    (len, bytes): (usize, &[u8]),
    row: usize,
    out: &mut [u8],
) {
    let mut codes = [0; SPAN * BLOCK];
    let codes = &mut codes[..len];
    (packing.codes)(bytes, codes);
    let blocks = out.chunks_exact_mut(code_bytes::<P>());
    for (codes, out) in codes.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        let mut quads = [0; 8];
        for (quad, codes) in quads.iter_mut().zip(codes.as_chunks::<4>().0) {
            *quad = u32::from_le_bytes(*codes);
        }
        for (word, out) in P::words(quads).iter().zip(out.chunks_exact_mut(4 * GROUP)) {
            out[4 * row..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }
}
