//! What quantisers share: ranges of values and storing factors.

use half::f16;

/// The value of largest magnitude.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
}

/// The smallest and the largest value.
pub(super) fn low_and_high(values: &[f32]) -> (f32, f32) {
    let fold = |f: fn(f32, f32) -> f32| values[1..].iter().fold(values[0], |m, &v| f(m, v));
    (fold(f32::min), fold(f32::max))
}

/// `value` as f16 in the first two bytes.
pub(super) fn store_f16(value: f32, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}
