//! Q5_0 and Q5_1: 32 five-bit codes with one f16 scale, around 16 or over an f16 minimum. The
//! fifth bits are a little-endian word, the others nibbles as in Q4_0. Follows
//! `dequantize_row_q5_0` and `dequantize_row_q5_1` of ggml.

use super::fit::{extreme, low_and_high, store_f16};
use super::q4_0::{nibbles, pack_nibbles};
use super::{QuantType, read_f16};

const LEN: usize = 32;

/// 32 five-bit codes with one f16 scale: `value = d * (q - 16)`.
pub static Q5_0: QuantType = QuantType {
    name: "q5_0",
    gguf_id: 6,
    block_len: LEN,
    block_bytes: 22,
    dequantize: Some(dequantize_0),
    quantize: Some(quantize_0),
};

/// 32 five-bit codes with an f16 scale and minimum: `value = d * q + m`.
pub static Q5_1: QuantType = QuantType {
    name: "q5_1",
    gguf_id: 7,
    block_len: LEN,
    block_bytes: 24,
    dequantize: Some(dequantize_1),
    quantize: Some(quantize_1),
};

fn dequantize_0(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(22).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        codes(&block[2..], out);
        out.iter_mut().for_each(|value| *value = d * (*value - 16.0));
    }
}

fn dequantize_1(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(24).zip(dst.chunks_exact_mut(LEN)) {
        let (d, m) = (read_f16(block), read_f16(&block[2..]));
        codes(&block[4..], out);
        out.iter_mut().for_each(|value| *value = d * *value + m);
    }
}

/// The codes of four bytes of fifth bits and sixteen of nibbles.
fn codes(packed: &[u8], out: &mut [f32]) {
    nibbles(&packed[4..], out, f32::from);
    let high = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    for (i, out) in out.iter_mut().enumerate() {
        *out += if high >> i & 1 == 1 { 16.0 } else { 0.0 };
    }
}

/// The inverse of [`codes`].
fn pack(codes: &[u8; LEN], packed: &mut [u8]) {
    let high = codes.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4) << i);
    packed[..4].copy_from_slice(&high.to_le_bytes());
    pack_nibbles(codes, &mut packed[4..20]);
}

fn quantize_0(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(22)) {
        // The value of largest magnitude gets code 0, that is -16 steps.
        let d = extreme(values) / -16.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        store_f16(d, block);
        let codes = std::array::from_fn(|i| (values[i] * inverse + 16.5).clamp(0.0, 31.0) as u8);
        pack(&codes, &mut block[2..]);
    }
}

fn quantize_1(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(24)) {
        let (low, high) = low_and_high(values);
        let d = (high - low) / 31.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        store_f16(d, block);
        store_f16(low, &mut block[2..]);
        let codes =
            std::array::from_fn(|i| ((values[i] - low) * inverse + 0.5).clamp(0.0, 31.0) as u8);
        pack(&codes, &mut block[4..]);
    }
}
