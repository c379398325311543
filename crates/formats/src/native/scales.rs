//! The scales of quantised weights, of any type.

use std::ops::Range;

use base::Storage;
use kernels::quant::{QuantType, fp8};

use crate::error::Result;
use crate::native::parts::check_type;
use crate::tensor::TensorView;

/// Scales that are checked at a time.
const PIECE: usize = 1 << 14;

/// A tensor of scales.
pub(super) struct Scales {
    bytes: Storage,
    ty: &'static QuantType,
    /// The value of scales of one byte.
    small: fn(u8) -> f32,
}

impl Scales {
    /// The scales in `view`, which must be finite numbers of one of `types`.
    ///
    /// # Errors
    /// If the tensor has another type, or a scale is not finite.
    pub fn new(view: &TensorView, types: &[&str]) -> Result<Self> {
        check_type(view, types)?;
        let powers: fn(u8) -> f32 = power_of_two;
        let small = if view.ty.name == "f8_e4m3" { fp8::value } else { powers };
        let scales = Self { bytes: view.bytes(), ty: view.ty, small };
        let count = view.elements();
        let mut values = Vec::new();
        for start in (0..count).step_by(PIECE) {
            scales.read(start..count.min(start + PIECE), &mut values);
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let problem = format!("expected finite scales, found {}", values[at]);
                return Err(view.error(format!("{problem} as value {}", start + at)));
            }
        }
        Ok(scales)
    }

    /// Scale `index`.
    pub fn at(&self, index: usize) -> f32 {
        let size = self.ty.block_bytes;
        self.value(&self.bytes.read(index * size..(index + 1) * size))
    }

    fn read(&self, range: Range<usize>, values: &mut Vec<f32>) {
        let size = self.ty.block_bytes;
        let bytes = self.bytes.read(range.start * size..range.end * size);
        values.clear();
        values.extend(bytes.chunks_exact(size).map(|bytes| self.value(bytes)));
    }

    fn value(&self, bytes: &[u8]) -> f32 {
        let mut value = [(self.small)(bytes[0])];
        if let Some(dequantize) = self.ty.dequantize {
            dequantize(bytes, &mut value);
        }
        value[0]
    }
}

/// E8M0 of the OCP Microscaling Formats specification 1.0: `2^(e - 127)`, and NaN.
fn power_of_two(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(e) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact_from_one_end_to_the_other() {
        for e in 0..255 {
            assert_eq!(f64::from(power_of_two(e)), 2f64.powi(i32::from(e) - 127));
        }
        assert!(power_of_two(255).is_nan());
    }
}
