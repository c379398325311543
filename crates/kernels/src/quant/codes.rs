//! Codes and scales of quant blocks: how they are read from bytes, and values restored from them.

use crate::lanes::LANES;
use crate::lanes::widen::Widen;

/// The f16 in the first two bytes, as f32.
#[inline(always)]
pub(super) fn read_f16(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// `scale * code - min` of each code, rounded after both steps.
#[inline(always)]
pub(super) fn restore_line<L: Widen>(codes: &[i8], scale: f32, min: f32, out: &mut [f32]) {
    let (scale, min) = (L::splat(scale), L::splat(min));
    let codes = codes.as_chunks::<LANES>().0;
    for (codes, out) in codes.iter().zip(out.as_chunks_mut().0) {
        L::load_i8(codes).mul(scale).sub(min).store(out);
    }
}

/// `codes` less `zero`.
#[inline(always)]
pub(super) fn centred(codes: &mut [u8], zero: u8) -> &[i8] {
    for code in &mut *codes {
        *code = code.wrapping_sub(zero);
    }
    bytemuck::cast_slice(codes)
}

/// The bits of the 16-bit value in the first two bytes.
#[inline(always)]
pub(super) fn read_bits(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

/// The nibbles of `bytes` as codes: the low ones first, then the high ones.
#[inline(always)]
pub(super) fn nibble_codes(bytes: &[u8], codes: &mut [u8]) {
    codes.fill(0);
    let (low, high) = codes.split_at_mut(bytes.len());
    add_bits(bytes, (0, 15, 0), low);
    add_bits(bytes, (4, 15, 0), high);
}

/// Adds the bits `mask` of each byte, shifted `down` and then `up`, to a code that lacks them, for
/// eight bytes at a time; lengths are multiples of eight.
#[inline(always)]
pub(super) fn add_bits(bytes: &[u8], (down, mask, up): (u32, u8, u32), codes: &mut [u8]) {
    let mask = u64::from_le_bytes([mask; 8]);
    for (bytes, codes) in bytes.as_chunks().0.iter().zip(codes.as_chunks_mut().0) {
        let bits = (u64::from_le_bytes(*bytes) >> down & mask) << up;
        *codes = (u64::from_le_bytes(*codes) | bits).to_le_bytes();
    }
}
