//! FP8: runs of eight-bit floats under one f32 scale, of several lengths.
//!
//! The codes are E4M3 of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022) in the form
//! without infinities: one sign, four exponent and three mantissa bits, bias 7, and NaN where all
//! seven bits are set. Files give a tile of rows and columns, a row or a whole matrix one scale;
//! here every run of a row has its scale next to its codes.

use crate::quant::quant_type::{NATIVE_IDS, QuantType};

/// Values of all codes.
static VALUES: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = value(code as u8);
        code += 1;
    }
    values
};

/// The value of a code, before its scale.
pub const fn value(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3 & 15) as u32, (code & 7) as u32);
    let magnitude = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        // Below the normal numbers: eighths of 2^-6.
        (0, _) => mantissa as f32 / 512.0,
        _ => f32::from_bits((exponent + 120) << 23 | mantissa << 20),
    };
    if code & 128 == 0 { magnitude } else { -magnitude }
}

/// Descriptors of runs of some lengths.
macro_rules! runs {
    ($($name:ident $text:literal $number:literal: $len:literal;)*) => {$(
        #[doc = concat!(stringify!($len), " codes after their f32 scale: `value = scale * code`.")]
        pub static $name: QuantType = QuantType {
            dequantize: Some(dequantize::<$len>),
            ..QuantType::listed($text, NATIVE_IDS + $number, $len, 4 + $len)
        };
    )*};
}

runs! {
    FP8_128 "fp8_128" 0: 128;
    FP8_64 "fp8_64" 1: 64;
    FP8_32 "fp8_32" 2: 32;
    FP8_16 "fp8_16" 3: 16;
    FP8_8 "fp8_8" 4: 8;
}

/// All of them, longest first.
pub static FP8: [&QuantType; 5] = [&FP8_128, &FP8_64, &FP8_32, &FP8_16, &FP8_8];

fn dequantize<const LEN: usize>(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(4 + LEN).zip(dst.as_chunks_mut::<LEN>().0) {
        let (scale, codes) = block.split_first_chunk().expect("a scale before the codes");
        let scale = f32::from_le_bytes(*scale);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = scale * VALUES[usize::from(*code)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_values_of_the_format() {
        let check = |code: u8, expected: f32| assert_eq!(value(code), expected, "{code:#x}");
        check(0x00, 0.0);
        check(0x01, 2f32.powi(-9));
        check(0x07, 0.875 * 2f32.powi(-6));
        check(0x08, 2f32.powi(-6));
        check(0x38, 1.0);
        check(0xc1, -2.25);
        check(0x7e, 448.0);
        check(0xfe, -448.0);
        assert!(value(0x7f).is_nan() && value(0xff).is_nan());
        assert!((0..0x7e).all(|code| value(code) < value(code + 1)));
    }

    #[test]
    fn every_run_has_its_own_scale() {
        for ty in FP8 {
            let mut bytes = Vec::new();
            for scale in [0.1f32, -3e-5] {
                bytes.extend(scale.to_le_bytes());
                bytes.extend((0..ty.block_len).map(|i| i as u8));
            }
            let mut values = vec![0.0; 2 * ty.block_len];
            (ty.dequantize.unwrap())(&bytes, &mut values);
            let (first, second) = values.split_at(ty.block_len);
            for (code, (a, b)) in (0..127).zip(first.iter().zip(second)) {
                assert_eq!((*a, *b), (0.1 * value(code), -3e-5 * value(code)), "{ty}");
            }
        }
    }
}
