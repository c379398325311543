//! IQ4_NL and IQ4_XS: four-bit codes into a table of sixteen uneven levels; IQ4_NL has one f16
//! scale per 32, IQ4_XS eight six-bit scales around 32 under one f16 factor per 256. Follows
//! `dequantize_row_iq4_nl` and `dequantize_row_iq4_xs` of ggml.

use super::q4_0::nibbles;
use super::{QuantType, read_f16};

const GROUP_LEN: usize = 32;

/// Levels that a code stands for, in units of the scale.
pub(super) const LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 32 codes with one f16 scale: `value = d * LEVELS[q]`.
pub static IQ4_NL: QuantType = QuantType {
    name: "iq4_nl",
    gguf_id: 20,
    block_len: GROUP_LEN,
    block_bytes: 18,
    dequantize: Some(dequantize_nl),
    quantize: None,
};

/// Eight groups of 32 codes: `value = d * (scale - 32) * LEVELS[q]`.
pub static IQ4_XS: QuantType = QuantType {
    name: "iq4_xs",
    gguf_id: 23,
    block_len: 256,
    block_bytes: 136,
    dequantize: Some(dequantize_xs),
    quantize: None,
};

fn dequantize_nl(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(18).zip(dst.chunks_exact_mut(GROUP_LEN)) {
        let d = read_f16(block);
        nibbles(&block[2..], out, |q| d * f32::from(LEVELS[usize::from(q)]));
    }
}

fn dequantize_xs(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(136).zip(dst.chunks_exact_mut(256)) {
        let d = read_f16(block);
        let high = u16::from_le_bytes([block[2], block[3]]);
        let groups = block[8..].chunks_exact(GROUP_LEN / 2);
        for (group, (codes, out)) in groups.zip(out.chunks_exact_mut(GROUP_LEN)).enumerate() {
            let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
            let scale = u16::from(low) | (high >> (2 * group) & 3) << 4;
            let d = d * (f32::from(scale) - 32.0);
            nibbles(codes, out, |q| d * f32::from(LEVELS[usize::from(q)]));
        }
    }
}
