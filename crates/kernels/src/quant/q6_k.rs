//! Q6_K: 256 six-bit codes around 32 in sixteen groups of 16 with signed byte scales under one
//! f16 factor. Follows `dequantize_row_q6_K` of ggml.

use super::fit::{Levels, WeightedBlock, fit_scales, inverse, nearest, store_f16};
use super::{
    BlockFormat, BlockScales, CodeLayout, Packing, QuantType, packing, read_bits, read_f16,
};

const LEN: usize = 256;
const BYTES: usize = 210;
const GROUPS: usize = 16;
const GROUP_LEN: usize = 16;
/// Offsets of the high bits, the scales and the factor; the low nibbles come first.
const HIGH: usize = 128;
const SCALES: usize = 192;
const FACTOR: usize = 208;

/// Sixteen groups of 16 six-bit codes: `value = d * scale * (q - 32)`.
pub static Q6_K: QuantType = QuantType::of::<Q6KBlocks, LEN, BYTES>("q6_k", 14);

/// Where value `index` of a block keeps its low four bits (byte, shift) and its high two.
#[inline(always)]
fn place(index: usize) -> ((usize, u32), (usize, u32)) {
    let (half, within) = (index / 128, index % 128);
    let (quarter, lane) = (within / 32, within % 32);
    let low = half * 64 + quarter % 2 * 32 + lane;
    ((low, quarter as u32 / 2 * 4), (HIGH + half * 32 + lane, quarter as u32 * 2))
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -32.0, 31.0)
}

/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 5] = [0.9, 0.95, 1.0, 1.03, 1.06];

struct Q6KBlocks;

impl BlockFormat<LEN, BYTES> for Q6KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperSix,
        block: (LEN, BYTES),
        codes: |block, codes| {
            for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
                let ((low, low_shift), (high, high_shift)) = place(run * 32);
                let bytes = block[low..].iter().zip(&block[high..]);
                for (code, (low, high)) in codes.iter_mut().zip(bytes) {
                    *code = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
                }
            }
        },
        scales: |block| BlockScales {
            scale: read_bits(&block[FACTOR..]),
            scales: std::array::from_fn(|g| block[SCALES + g] as i8),
            ..BlockScales::default()
        },
    });

    fn restore(block: &[u8; BYTES], out: &mut [f32; LEN]) {
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

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let levels = Levels { round: level, ends: [-32.0, 31.0], reaches: &REACHES };
        let (d, scales) = fit_scales::<LEN, GROUP_LEN, GROUPS>(values, levels, [-128.0, 127.0], 5);
        store_f16(d, &mut block[FACTOR..]);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            block[SCALES + g] = scales[g] as i8 as u8;
            let inverse = inverse(d.to_f32() * scales[g]);
            let ((low, low_shift), (high, high_shift)) = place(g * GROUP_LEN);
            for (i, value) in group.values.iter().enumerate() {
                let code = (level(value * inverse) + 32.0) as u8;
                block[low + i] |= (code & 15) << low_shift;
                block[high + i] |= (code >> 4) << high_shift;
            }
        }
    }
}
