//! Q8_0: 32 signed bytes and one f16 scale. Follows `dequantize_row_q8_0` of ggml.

use super::fit::isa;
use super::{BlockScales, CodeLayout, Packing, QuantType, packing, read_bits, read_f16};
use crate::lanes::{Kernel, run_on};
use half::f16;

const LEN: usize = 32;
const BYTES: usize = 34;

/// 32 signed bytes with one f16 scale: `value = d * q`.
pub static Q8_0: QuantType = QuantType {
    dequantize: Some(dequantize),
    quantize: Some(quantize),
    packing: Some(&PACKING),
    ..QuantType::listed("q8_0", 8, LEN, BYTES)
};

/// The codes are the bytes themselves.
static PACKING: Packing = packing! {
    code_layout: CodeLayout::Bytes,
    block: (LEN, BYTES),
    codes: |block, codes| codes.copy_from_slice(&block[2..]),
    scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
};

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        for (out, &q) in out.iter_mut().zip(&block[2..]) {
            *out = d * f32::from(q as i8);
        }
    }
}

fn quantize(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    run_on(isa(), QuantizeQ8_0 { src, dst });
}

struct QuantizeQ8_0<'a> {
    src: &'a [f32],
    dst: &'a mut [u8],
}

impl Kernel for QuantizeQ8_0<'_> {
    #[inline(always)]
    fn run(self) {
        let blocks = self.src.as_chunks::<LEN>().0.iter();
        for (values, block) in blocks.zip(self.dst.as_chunks_mut::<BYTES>().0) {
            let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let d = largest / 127.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
            for (q, value) in block[2..].iter_mut().zip(values) {
                *q = (value * inverse).round() as i8 as u8;
            }
        }
    }
}
