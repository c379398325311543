//! IQ3_XXS and IQ3_S: fours of values as entries of a codebook with their signs apart, under an
//! f16 factor and a four-bit scale per 32 values. Follows `dequantize_row_iq3_xxs` and
//! `dequantize_row_iq3_s` of ggml.

use super::grids::{IQ3_S as GRID_S, IQ3_XXS as GRID_XXS};
use super::iq2::{EIGHT, even_signs, nibble, read_u32, signed};
use super::{QuantType, read_f16};

const LEN: usize = 256;
const GROUP_LEN: usize = 32;

/// Entries of eight bits and signs of seven per eight: `value = d * (scale + 0.5) / 2 * entry`.
pub static IQ3_XXS: QuantType = QuantType {
    name: "iq3_xxs",
    gguf_id: 18,
    block_len: LEN,
    block_bytes: 98,
    dequantize: Some(dequantize_xxs),
    quantize: None,
    packing: None,
};

/// Entries of nine bits and a sign for each value: `value = d * (2 * scale + 1) * entry`.
pub static IQ3_S: QuantType = QuantType {
    name: "iq3_s",
    gguf_id: 21,
    block_len: LEN,
    block_bytes: 110,
    dequantize: Some(dequantize_s),
    quantize: None,
    packing: None,
};

/// Two entries of four values each.
fn write(out: &mut [f32], entries: [u16; 2], signs: u8, scale: f32, level: impl Fn(u16) -> f32) {
    for (i, out) in out.iter_mut().enumerate() {
        let code = entries[i / 4] >> (3 * (i % 4)) & 7;
        *out = signed(scale * level(code), signs, i);
    }
}

fn dequantize_xxs(src: &[u8], dst: &mut [f32]) {
    // 4, 12, 20 and so on, but for the last.
    let level = |code| if code == 7 { 62.0 } else { f32::from(4 + 8 * code) };
    for (block, out) in src.chunks_exact(98).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        for (group, out) in out.chunks_exact_mut(GROUP_LEN).enumerate() {
            let word = read_u32(&block[66 + 4 * group..]);
            let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
            for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
                let codes = &block[2 + 8 * group + 2 * i..];
                let entries = [0, 1].map(|half| GRID_XXS[usize::from(codes[half])]);
                write(out, entries, even_signs(word >> (7 * i)), scale, level);
            }
        }
    }
}

fn dequantize_s(src: &[u8], dst: &mut [f32]) {
    let level = |code| f32::from(1 + 2 * code);
    for (block, out) in src.chunks_exact(110).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        for (i, out) in out.chunks_exact_mut(EIGHT).enumerate() {
            let scale = d * (1 + 2 * nibble(&block[106..], i / 4)) as f32;
            let entries = [2 * i, 2 * i + 1].map(|four| {
                let high = block[66 + four / 8] >> (four % 8) & 1;
                GRID_S[usize::from(block[2 + four]) | usize::from(high) << 8]
            });
            write(out, entries, block[74 + i], scale, level);
        }
    }
}
