//! Q5_K: 256 five-bit codes in eight groups of 32, scales and minima as in Q4_K, the fifth bits
//! of group `g` in bit `g` of 32 bytes. Follows `dequantize_row_q5_K` of ggml.

use super::fit::{WeightedBlock, fit_lines};
use super::q4_k::{SHRINKS, pair_codes, restore_groups, steps, store_steps};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::add_bits;
use crate::quant::packing::{CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;
const BYTES: usize = 176;
const GROUPS: usize = 8;
const GROUP_LEN: usize = 32;
/// Offsets of the fifth bits and the nibbles.
const HIGH: usize = 16;
const LOW: usize = 48;
/// The largest code.
const TOP: f32 = 31.0;

/// Eight groups of 32 five-bit codes: `value = d * scale * q - dmin * min`.
pub static Q5_K: QuantType = QuantType::of::<Q5KBlocks, LEN, BYTES>("q5_k", 13);

/// The codes of a block.
#[inline(always)]
fn codes(block: &[u8; BYTES], codes: &mut [u8; LEN]) {
    pair_codes(&block[LOW..], codes);
    for (group, codes) in codes.chunks_exact_mut(GROUP_LEN).enumerate() {
        add_bits(&block[HIGH..], (group as u32, 1, 4), codes);
    }
}

struct Q5KBlocks;

impl BlockFormat<LEN, BYTES> for Q5KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperFiveMin,
        block: (LEN, BYTES),
        codes: |block, all| codes(block, all),
        scales: |block| steps(block),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut all = [0; LEN];
        codes(block, &mut all);
        restore_groups::<L>(block, &all, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let lines = fit_lines::<LEN, GROUP_LEN, GROUPS>(values, TOP, 63.0, &SHRINKS);
        store_steps(&lines, block);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            for (i, &value) in group.values.iter().enumerate() {
                let code = lines.line(g).code(value, TOP) as u8;
                block[LOW + g / 2 * GROUP_LEN + i] |= (code & 15) << (g % 2 * 4);
                block[HIGH + i] |= (code >> 4) << g;
            }
        }
    }
}
