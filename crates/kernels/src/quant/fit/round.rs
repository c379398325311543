//! Rounding to what formats store: factors to f16, levels to integers.

use half::f16;

/// Groups whose values are all smaller than this are zero under the smallest f16 factor.
pub(super) const MIN_SCALE: f32 = 1e-12;

/// The integer nearest to `value` within `low..=high`, which are below 2^22: adding and subtracting
/// 1.5 * 2^23 leaves no bits for a fraction.
#[inline(always)]
pub(in crate::quant) fn nearest(value: f32, low: f32, high: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    // Comparisons, because `max` and `min` cost more for their treatment of NaN.
    let value = if value > low { value } else { low };
    let value = if value < high { value } else { high };
    (value + SHIFT) - SHIFT
}

/// `1 / scale`, or zero if only zero can be stored.
#[inline(always)]
pub(in crate::quant) fn inverse(scale: f32) -> f32 {
    if scale.abs() < MIN_SCALE { 0.0 } else { 1.0 / scale }
}

/// The nearest finite f16, which is zero only if `value` is.
#[inline(always)]
pub(super) fn factor(value: f32) -> f16 {
    let most = f16::MAX.to_f32();
    let near = f16::from_f32(value.clamp(-most, most));
    if near.to_bits() & 0x7fff == 0 && value.abs() >= MIN_SCALE {
        return f16::from_bits(near.to_bits() | 1);
    }
    near
}

/// The f16 nearest to `value`, the one below and the one above it in magnitude, all finite.
#[inline(always)]
pub(super) fn factors(value: f32) -> [f16; 3] {
    let bits = factor(value).to_bits();
    let (sign, magnitude) = (bits & 0x8000, bits & 0x7fff);
    let largest = f16::MAX.to_bits();
    [magnitude, magnitude.saturating_sub(1), (magnitude + 1).min(largest)]
        .map(|magnitude| f16::from_bits(sign | magnitude))
}

/// `value` as f16 in the first two bytes.
#[inline(always)]
pub(in crate::quant) fn store_f16(value: f16, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&value.to_le_bytes());
}
