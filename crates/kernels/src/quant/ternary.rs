//! TQ1_0 and TQ2_0: 256 codes of -1, 0, 1 under one f16 scale. TQ1_0 keeps five of them in a
//! byte as a fraction in base three, TQ2_0 four in two bits each. Follows `dequantize_row_tq1_0`
//! and `dequantize_row_tq2_0` of ggml.

use super::q2_k::place;
use super::{QuantType, read_f16};

const LEN: usize = 256;

/// 256 ternary codes, five to a byte: `value = d * (q - 1)`.
pub static TQ1_0: QuantType = QuantType {
    name: "tq1_0",
    gguf_id: 34,
    block_len: LEN,
    block_bytes: 54,
    dequantize: Some(dequantize_1),
    quantize: None,
};

/// 256 ternary codes in two bits each: `value = d * (q - 1)`.
pub static TQ2_0: QuantType = QuantType {
    name: "tq2_0",
    gguf_id: 35,
    block_len: LEN,
    block_bytes: 66,
    dequantize: Some(dequantize_2),
    quantize: None,
};

/// Runs of bytes of a TQ1_0 block: first byte, bytes, digits in each.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];

fn dequantize_1(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(54).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(&block[52..]);
        let mut out = out.iter_mut();
        for (first, bytes, digits) in RUNS {
            for digit in 0..digits as u32 {
                for (byte, out) in block[first..][..bytes].iter().zip(&mut out) {
                    // The next digit is what overflows a byte when the fraction is tripled.
                    let fraction = byte.wrapping_mul(3u8.pow(digit));
                    *out = d * (f32::from(u16::from(fraction) * 3 >> 8) - 1.0);
                }
            }
        }
    }
}

fn dequantize_2(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(66).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(&block[64..]);
        for (index, out) in out.iter_mut().enumerate() {
            let (byte, shift) = place(index);
            *out = d * (f32::from(block[byte] >> shift & 3) - 1.0);
        }
    }
}
