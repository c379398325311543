//! Q8_0: 32 signed bytes and one f16 scale. Follows `dequantize_row_q8_0` of ggml.

use super::fit::{WeightedBlock, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;
use half::f16;

const LEN: usize = 32;
const BYTES: usize = 34;

/// 32 signed bytes with one f16 scale: `value = d * q`.
pub static Q8_0: QuantType = QuantType::of::<Q8Blocks, LEN, BYTES>("q8_0", 8);

struct Q8Blocks;

impl BlockFormat<LEN, BYTES> for Q8Blocks {
    /// The codes are the bytes themselves.
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::Bytes,
        block: (LEN, BYTES),
        codes: |block, codes| codes.copy_from_slice(&block[2..]),
        scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        restore_line::<L>(bytemuck::cast_slice(&block[2..]), read_f16(block), 0.0, out);
    }

    /// The scale puts the largest magnitude at 127, as ggml does; weights do not change it.
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let largest = values.values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let d = largest / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        store_f16(f16::from_f32(d), block);
        for (q, value) in block[2..].iter_mut().zip(values.values) {
            *q = (value * inverse).round() as i8 as u8;
        }
    }
}
