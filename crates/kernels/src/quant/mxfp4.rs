//! MXFP4: 32 four-bit floats (one sign, two exponent, one mantissa bit) under a power of two.
//! Follows the OCP Microscaling Formats specification 1.0 and `dequantize_row_mxfp4` of ggml.

use super::QuantType;
use super::q4_0::nibbles;

const LEN: usize = 32;
const BYTES: usize = 17;

/// Twice the values of the codes, so that all are whole.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 four-bit floats: `value = 2^(e - 128) * DOUBLED[q]`.
pub static MXFP4: QuantType = QuantType {
    name: "mxfp4",
    gguf_id: 39,
    block_len: LEN,
    block_bytes: BYTES,
    dequantize: Some(dequantize),
    quantize: None,
};

/// `2^(e - 128)`.
fn half_scale(e: u8) -> f32 {
    match e {
        // Below the normal numbers of f32.
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let scale = half_scale(block[0]);
        nibbles(&block[1..], out, |q| scale * f32::from(DOUBLED[usize::from(q)]));
    }
}
