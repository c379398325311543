//! Grouped integers: 32 codes with an f32 scale and a zero point, as GPTQ, AWQ and
//! compressed-tensors mean them: `value = scale * (q - zero)`, the difference an exact integer and
//! one rounding after it. Files have groups of 32 or more; here every 32 carry what their group
//! has.

use super::q4_0::nibbles;
use crate::quant::codes::nibble_codes;
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::{NATIVE_IDS, QuantType};

const LEN: usize = 32;
const BYTES_4: usize = 5 + LEN / 2;
const BYTES_8: usize = 6 + LEN;

/// 32 four-bit codes: f32 scale, zero point (unsigned byte), then code `i` in the low nibble of
/// byte `i` and code `i + 16` in its high nibble.
pub static INT4: QuantType = QuantType {
    dequantize: Some(dequantize_4),
    packing: Some(&PACKING_4),
    ..QuantType::listed("int4", NATIVE_IDS + 8, LEN, BYTES_4)
};

/// 32 signed bytes: f32 scale, zero point (16 bits, from -128 to 128), then the codes.
pub static INT8: QuantType = QuantType {
    dequantize: Some(dequantize_8),
    packing: Some(&PACKING_8),
    ..QuantType::listed("int8", NATIVE_IDS + 9, LEN, BYTES_8)
};

static PACKING_4: Packing = packing! {
    code_layout: CodeLayout::FourZero,
    block: (LEN, BYTES_4),
    codes: |block, codes| nibble_codes(&block[5..], codes),
    scales: |block| grouped(block, i16::from(block[4])),
};

static PACKING_8: Packing = packing! {
    code_layout: CodeLayout::BytesZero,
    block: (LEN, BYTES_8),
    codes: |block, codes| codes.copy_from_slice(&block[6..]),
    scales: |block| grouped(block, i16::from_le_bytes([block[4], block[5]])),
};

#[inline(always)]
fn scale(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

#[inline(always)]
fn grouped(block: &[u8], zero: i16) -> BlockScales {
    BlockScales { wide: scale(block), zero, ..BlockScales::default() }
}

fn dequantize_4(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.as_chunks::<BYTES_4>().0.iter().zip(dst.as_chunks_mut::<LEN>().0) {
        let (scale, zero) = (scale(block), f32::from(block[4]));
        nibbles(&block[5..], out, |q| scale * (f32::from(q) - zero));
    }
}

fn dequantize_8(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.as_chunks::<BYTES_8>().0.iter().zip(dst.as_chunks_mut::<LEN>().0) {
        let (scale, zero) = (scale(block), f32::from(i16::from_le_bytes([block[4], block[5]])));
        for (out, q) in out.iter_mut().zip(&block[6..]) {
            *out = scale * (f32::from(*q as i8) - zero);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact_differences_under_one_rounding() {
        let scale = 0.1f32;
        let mut four = scale.to_le_bytes().to_vec();
        four.push(16);
        four.extend((0..16).map(|i| i | (15 - i) << 4));
        let mut values = [0.0; LEN];
        dequantize_4(&four, &mut values);
        for i in 0..16 {
            assert_eq!(values[i], scale * (i as f32 - 16.0));
            assert_eq!(values[i + 16], scale * (-1.0 - i as f32));
        }
        let mut eight = scale.to_le_bytes().to_vec();
        eight.extend(128i16.to_le_bytes());
        eight.extend((0..32).map(|i| (i * 8 - 128i32) as u8));
        dequantize_8(&eight, &mut values);
        assert_eq!((values[0], values[31]), (scale * -256.0, scale * -8.0));
    }
}
