//! Q4_0 and Q4_1: 32 four-bit codes with one f16 scale, around 8 or over an f16 minimum; code
//! `i` is the low nibble of byte `i`, code `i + 16` its high nibble. Follows
//! `dequantize_row_q4_0` and `dequantize_row_q4_1` of ggml.

use super::fit::{extreme, low_and_high, store_f16};
use super::{QuantType, read_f16};

const LEN: usize = 32;

/// 32 four-bit codes with one f16 scale: `value = d * (q - 8)`.
pub static Q4_0: QuantType = QuantType {
    name: "q4_0",
    gguf_id: 2,
    block_len: LEN,
    block_bytes: 18,
    dequantize: Some(dequantize_0),
    quantize: Some(quantize_0),
};

/// 32 four-bit codes with an f16 scale and minimum: `value = d * q + m`.
pub static Q4_1: QuantType = QuantType {
    name: "q4_1",
    gguf_id: 3,
    block_len: LEN,
    block_bytes: 20,
    dequantize: Some(dequantize_1),
    quantize: Some(quantize_1),
};

fn dequantize_0(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(18).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        nibbles(&block[2..], out, |q| d * (f32::from(q) - 8.0));
    }
}

fn dequantize_1(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(20).zip(dst.chunks_exact_mut(LEN)) {
        let (d, m) = (read_f16(block), read_f16(&block[2..]));
        nibbles(&block[4..], out, |q| d * f32::from(q) + m);
    }
}

/// `out` from the nibbles of half as many bytes: the low ones first, then the high ones.
pub(super) fn nibbles(bytes: &[u8], out: &mut [f32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = value(byte & 15);
        *high = value(byte >> 4);
    }
}

/// The inverse of [`nibbles`].
pub(super) fn pack_nibbles(codes: &[u8], bytes: &mut [u8]) {
    let (low, high) = codes.split_at(bytes.len());
    for ((low, high), byte) in low.iter().zip(high).zip(bytes) {
        *byte = low & 15 | high << 4;
    }
}

fn quantize_0(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(18)) {
        // The value of largest magnitude gets code 0, that is -8 steps.
        let d = extreme(values) / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        store_f16(d, block);
        let codes: [u8; LEN] =
            std::array::from_fn(|i| (values[i] * inverse + 8.5).clamp(0.0, 15.0) as u8);
        pack_nibbles(&codes, &mut block[2..]);
    }
}

fn quantize_1(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(20)) {
        let (low, high) = low_and_high(values);
        let d = (high - low) / 15.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        store_f16(d, block);
        store_f16(low, &mut block[2..]);
        let codes: [u8; LEN] =
            std::array::from_fn(|i| ((values[i] - low) * inverse + 0.5).clamp(0.0, 15.0) as u8);
        pack_nibbles(&codes, &mut block[4..]);
    }
}
