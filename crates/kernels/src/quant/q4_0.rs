//! Q4_0: 32 four-bit codes around 8 and one f16 scale; code `i` is the low nibble of byte `i`,
//! code `i + 16` its high nibble. Follows `dequantize_row_q4_0` of ggml.

use super::{QuantType, read_f16};
use half::f16;

const LEN: usize = 32;
const BYTES: usize = 18;

/// 32 four-bit codes with one f16 scale: `value = d * (q - 8)`.
pub static Q4_0: QuantType = QuantType {
    name: "q4_0",
    gguf_id: 2,
    block_len: LEN,
    block_bytes: BYTES,
    dequantize: Some(dequantize),
    quantize: Some(quantize),
};

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        let (low, high) = out.split_at_mut(LEN / 2);
        for ((low, high), q) in low.iter_mut().zip(high).zip(&block[2..]) {
            *low = d * (f32::from(q & 15) - 8.0);
            *high = d * (f32::from(q >> 4) - 8.0);
        }
    }
}

fn quantize(src: &[f32], dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(BYTES)) {
        // The value of largest magnitude gets code 0, that is -8 steps.
        let extreme = values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
        let d = extreme / -8.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        let code = |v: f32| (v * inverse + 8.5).clamp(0.0, 15.0) as u8;
        for (i, q) in block[2..].iter_mut().enumerate() {
            *q = code(values[i]) | code(values[i + LEN / 2]) << 4;
        }
    }
}
