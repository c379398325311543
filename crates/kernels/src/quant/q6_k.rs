//! Q6_K: 256 six-bit codes around 32 in sixteen groups of 16 with signed byte scales under one
//! f16 factor. Follows `dequantize_row_q6_K` of ggml.

use super::fit::extreme;
use super::{QuantType, read_f16};
use half::f16;

const LEN: usize = 256;
const BYTES: usize = 210;
const GROUP_LEN: usize = 16;
/// Offsets of the high bits, the scales and the factor; the low nibbles come first.
const HIGH: usize = 128;
const SCALES: usize = 192;
const FACTOR: usize = 208;

/// Sixteen groups of 16 six-bit codes: `value = d * scale * (q - 32)`.
pub static Q6_K: QuantType = QuantType {
    name: "q6_k",
    gguf_id: 14,
    block_len: LEN,
    block_bytes: BYTES,
    dequantize: Some(dequantize),
    quantize: Some(quantize),
};

/// Where value `index` of a block keeps its low four bits (byte, shift) and its high two.
fn place(index: usize) -> ((usize, u32), (usize, u32)) {
    let (half, within) = (index / 128, index % 128);
    let (quarter, lane) = (within / 32, within % 32);
    let low = half * 64 + quarter % 2 * 32 + lane;
    ((low, quarter as u32 / 2 * 4), (HIGH + half * 32 + lane, quarter as u32 * 2))
}

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(&block[FACTOR..]);
        for (group, out) in out.chunks_exact_mut(GROUP_LEN).enumerate() {
            let scale = d * f32::from(block[SCALES + group] as i8);
            let ((low, low_shift), (high, high_shift)) = place(group * GROUP_LEN);
            for (i, out) in out.iter_mut().enumerate() {
                let code =
                    block[low + i] >> low_shift & 15 | (block[high + i] >> high_shift & 3) << 4;
                *out = scale * (f32::from(code) - 32.0);
            }
        }
    }
}

fn quantize(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(BYTES)) {
        block.fill(0);
        // A group's value of largest magnitude gets code 0, that is -32 steps.
        let steps: Vec<f32> = values.chunks_exact(GROUP_LEN).map(|g| extreme(g) / -32.0).collect();
        let d = f16::from_f32(extreme(&steps) / -128.0);
        block[FACTOR..].copy_from_slice(&d.to_le_bytes());
        for (group, values) in values.chunks_exact(GROUP_LEN).enumerate() {
            let unit = d.to_f32();
            let scale =
                if unit == 0.0 { 0.0 } else { (steps[group] / unit).round().clamp(-128.0, 127.0) };
            block[SCALES + group] = scale as i8 as u8;
            for (i, value) in values.iter().enumerate() {
                let step = unit * scale;
                let code = if step == 0.0 { 32.0 } else { (value / step).round() + 32.0 };
                let code = code.clamp(0.0, 63.0) as u8;
                let ((low, low_shift), (high, high_shift)) = place(group * GROUP_LEN + i);
                block[low] |= (code & 15) << low_shift;
                block[high] |= (code >> 4) << high_shift;
            }
        }
    }
}
