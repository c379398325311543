//! Q5_0 and Q5_1: 32 five-bit codes with one f16 scale, around 16 or over an f16 minimum. The
//! fifth bits are a little-endian word, the others nibbles as in Q4_0. Follows
//! `dequantize_row_q5_0` and `dequantize_row_q5_1` of ggml.

use super::fit::{
    self, Levels, Line, Quantiser, WeightedBlock, fit_f16_line, fit_f16_scale, inverse, nearest,
    store_f16,
};
use super::q4_0::{over_minimum, pack_nibbles};
use super::{
    BlockScales, CodeLayout, Packing, QuantType, nibble_codes, packing, read_bits, read_f16,
};
use half::f16;

const LEN: usize = 32;
/// Where the value of largest magnitude is tried, relative to the levels at the ends.
const REACHES: [f32; 11] = [0.9, 0.92, 0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1];

/// 32 five-bit codes with one f16 scale: `value = d * (q - 16)`.
pub static Q5_0: QuantType = QuantType {
    dequantize: Some(dequantize_0),
    quantize: Some(fit::quantize::<Store0, LEN, 22>),
    packing: Some(&PACKING_0),
    ..QuantType::listed("q5_0", 6, LEN, 22)
};

/// 32 five-bit codes with an f16 scale and minimum: `value = d * q + m`.
pub static Q5_1: QuantType = QuantType {
    dequantize: Some(dequantize_1),
    quantize: Some(fit::quantize::<Store1, LEN, 24>),
    packing: Some(&PACKING_1),
    ..QuantType::listed("q5_1", 7, LEN, 24)
};

static PACKING_0: Packing = packing! {
    code_layout: CodeLayout::Five,
    block: (LEN, 22),
    codes: |block, out| codes(&block[2..], out),
    scales: |block| BlockScales { scale: read_bits(block), ..BlockScales::default() },
};

static PACKING_1: Packing = packing! {
    code_layout: CodeLayout::FiveMin,
    block: (LEN, 24),
    codes: |block, out| codes(&block[4..], out),
    scales: |block| over_minimum(block),
};

/// The codes of four bytes of fifth bits and sixteen of nibbles.
#[inline(always)]
fn codes(packed: &[u8], codes: &mut [u8]) {
    nibble_codes(&packed[4..], codes);
    let high = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((high >> i & 1) as u8) << 4;
    }
}

fn dequantize_0(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(22).zip(dst.chunks_exact_mut(LEN)) {
        let d = read_f16(block);
        let mut q = [0; LEN];
        codes(&block[2..], &mut q);
        for (out, q) in out.iter_mut().zip(q) {
            *out = d * (f32::from(q) - 16.0);
        }
    }
}

fn dequantize_1(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(24).zip(dst.chunks_exact_mut(LEN)) {
        let (d, m) = (read_f16(block), read_f16(&block[2..]));
        let mut q = [0; LEN];
        codes(&block[4..], &mut q);
        for (out, q) in out.iter_mut().zip(q) {
            *out = d * f32::from(q) + m;
        }
    }
}

/// The inverse of [`codes`].
#[inline(always)]
fn pack(codes: &[u8; LEN], packed: &mut [u8]) {
    let high = codes.iter().enumerate().fold(0u32, |bits, (i, q)| bits | u32::from(q >> 4) << i);
    packed[..4].copy_from_slice(&high.to_le_bytes());
    pack_nibbles(codes, &mut packed[4..20]);
}

#[inline(always)]
fn level(value: f32) -> f32 {
    nearest(value, -16.0, 15.0)
}

struct Store0;

impl Quantiser<LEN, 22> for Store0 {
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 22]) {
        let levels = Levels { round: level, ends: [-16.0, 15.0], reaches: &REACHES };
        let d = fit_f16_scale(values.whole(), levels);
        store_f16(d, block);
        let inverse = inverse(d.to_f32());
        pack(&values.values.map(|v| (level(v * inverse) + 16.0) as u8), &mut block[2..]);
    }
}

struct Store1;

impl Quantiser<LEN, 24> for Store1 {
    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; 24]) {
        let factors = fit_f16_line(values.whole(), 31.0);
        store_f16(factors[0], block);
        store_f16(factors[1], &mut block[2..]);
        let [scale, offset] = factors.map(f16::to_f32);
        let line = Line { scale, offset };
        pack(&values.values.map(|v| line.code(v, 31.0) as u8), &mut block[4..]);
    }
}
