//! IQ1_S and IQ1_M: eights of values as entries of a ternary codebook moved by an eighth up or
//! down, under an f16 factor and three-bit scales per 32 or 16 values. Follows
//! `dequantize_row_iq1_s` and `dequantize_row_iq1_m` of ggml.

use super::grids::IQ1 as GRID;
use super::iq2::{EIGHT, nibble};
use super::{QuantType, read_f16};

const LEN: usize = 256;
/// How far all values of an entry are moved.
const DELTA: f32 = 0.125;

/// A scale and a move per 32: `value = d * (2 * scale + 1) * (entry +- 1/8)`.
pub static IQ1_S: QuantType = QuantType {
    name: "iq1_s",
    gguf_id: 19,
    block_len: LEN,
    block_bytes: 50,
    dequantize: Some(dequantize_s),
    quantize: None,
    packing: None,
};

/// A scale per 16 and a move per 8: `value = d * (2 * scale + 1) * (entry +- 1/8)`. The factor's
/// bits are the high nibbles of the four words of scales.
pub static IQ1_M: QuantType = QuantType {
    name: "iq1_m",
    gguf_id: 29,
    block_len: LEN,
    block_bytes: 56,
    dequantize: Some(dequantize_m),
    quantize: None,
    packing: None,
};

fn write(out: &mut [f32], entry: u16, scale: f32, down: bool) {
    let delta = if down { -DELTA } else { DELTA };
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale * (f32::from(entry >> (2 * i) & 3) - 1.0 + delta);
    }
}

fn read_u16(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn dequantize_s(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(50).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let word = read_u16(&block[34 + i / 4 * 2..]);
            let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
            let high = word >> (3 * (i % 4)) & 7;
            let entry = GRID[usize::from(u16::from(block[2 + i]) | high << 8)];
            write(out, entry, scale, word >> 15 == 1);
        }
    }
}

fn dequantize_m(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(56).zip(dst.chunks_exact_mut(LEN)) {
        let words: [u16; 4] = std::array::from_fn(|i| read_u16(&block[48 + 2 * i..]));
        let factor = (0..4).fold(0, |bits, i| bits | words[i] >> 12 << (4 * i));
        let d = half::f16::from_bits(factor).to_f32();
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let sixteen = i / 2;
            let three_bits = words[sixteen / 4] >> (3 * (sixteen % 4)) & 7;
            let scale = d * f32::from(2 * three_bits + 1);
            let high = nibble(&block[32..], i);
            let entry = GRID[usize::from(block[i]) | (high as usize & 7) << 8];
            write(out, entry, scale, high & 8 != 0);
        }
    }
}
