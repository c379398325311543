//! Q2_K: 256 two-bit codes in sixteen groups of 16, each with a four-bit scale and a four-bit
//! minimum, under two f16 factors. Follows `dequantize_row_q2_K` of ggml.

use super::fit::{WeightedBlock, fit_lines, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{add_bits, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;
const BYTES: usize = 84;
const GROUPS: usize = 16;
const GROUP_LEN: usize = 16;
/// The largest code.
const TOP: f32 = 3.0;
/// Factors that are tried put the largest scale at the largest step over these.
const SHRINKS: [f32; 2] = [1.0, 0.8];
/// Offsets of the codes and the factors; scales (low nibble) and minima (high) come first.
const CODES: usize = 16;
const FACTORS: usize = 80;

/// Sixteen groups of 16 two-bit codes: `value = d * scale * q - dmin * min`.
pub static Q2_K: QuantType = QuantType::of::<Q2KBlocks, LEN, BYTES>("q2_k", 10);

/// Two bits for each of 256 codes.
#[inline(always)]
pub(super) fn two_bits(bytes: &[u8], codes: &mut [u8]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        let (first, shift) = place(run * 32);
        codes.fill(0);
        add_bits(&bytes[first..], (shift, 3, 0), codes);
    }
}

/// Where two-bit code `index` of 256 lies: byte and shift. Four runs of 32 share 32 bytes.
#[inline(always)]
pub(super) fn place(index: usize) -> (usize, u32) {
    let (half, quarter, lane) = (index / 128, index % 128 / 32, index % 32);
    (half * 32 + lane, 2 * quarter as u32)
}

struct Q2KBlocks;

impl BlockFormat<LEN, BYTES> for Q2KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperTwoMin,
        block: (LEN, BYTES),
        codes: |block, codes| two_bits(&block[CODES..], codes),
        scales: |block| BlockScales {
            scale: read_bits(&block[FACTORS..]),
            min: read_bits(&block[FACTORS + 2..]),
            scales: std::array::from_fn(|g| (block[g] & 15) as i8),
            mins: std::array::from_fn(|g| (block[g] >> 4) as i8),
            ..BlockScales::default()
        },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        two_bits(&block[CODES..], &mut codes);
        let (d, dmin) = (read_f16(&block[FACTORS..]), read_f16(&block[FACTORS + 2..]));
        let groups = bytemuck::cast_slice(&codes).chunks_exact(GROUP_LEN);
        for ((codes, out), step) in groups.zip(out.chunks_exact_mut(GROUP_LEN)).zip(block) {
            let (scale, min) = (d * f32::from(step & 15), dmin * f32::from(step >> 4));
            restore_line::<L>(codes, scale, min, out);
        }
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let lines = fit_lines::<LEN, GROUP_LEN, GROUPS>(values, TOP, 15.0, &SHRINKS);
        store_f16(lines.factors[0], &mut block[FACTORS..]);
        store_f16(lines.factors[1], &mut block[FACTORS + 2..]);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            let [scale, min] = lines.steps[g];
            block[g] = scale as u8 | (min as u8) << 4;
            let (first, shift) = place(g * GROUP_LEN);
            for (byte, &value) in block[CODES + first..].iter_mut().zip(group.values) {
                *byte |= (lines.line(g).code(value, TOP) as u8) << shift;
            }
        }
    }
}
