//! Scales of quantised values: the largest magnitude of a group, as a BF16 value.

/// A scale as the 16 bits of a BF16 value no smaller, so that nothing has to be clamped. Its
/// products with small integers are exact in f32.
pub(super) fn scale_bits(scale: f32) -> u16 {
    let bits = scale.to_bits();
    // Infinity and NaN stay what they are.
    if scale.is_finite() { (bits.saturating_add(0xffff) >> 16) as u16 } else { 0x7fc0 }
}

/// The value of [`scale_bits`].
pub(super) fn scale_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The largest magnitude, NaN if there is one.
#[inline(always)]
pub(super) fn largest(values: &[f32]) -> f32 {
    // Magnitudes are ordered as their bits, NaN after all others.
    let bits = values.iter().map(|value| value.to_bits() & 0x7fff_ffff);
    f32::from_bits(bits.fold(0, u32::max))
}
