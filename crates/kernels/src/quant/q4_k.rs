//! Q4_K: 256 four-bit codes in eight groups of 32, each with a six-bit scale and a six-bit
//! minimum, under two f16 factors. Follows `dequantize_row_q4_K` of ggml.

use super::fit::{FittedLines, WeightedBlock, fit_lines, store_f16};
use crate::lanes::widen::Widen;
use crate::quant::block_format::BlockFormat;
use crate::quant::codes::{nibble_codes, read_bits, read_f16, restore_line};
use crate::quant::packing::{BlockScales, CodeLayout, Packing, packing};
use crate::quant::quant_type::QuantType;

const LEN: usize = 256;
const BYTES: usize = 144;
const GROUPS: usize = 8;
const GROUP_LEN: usize = 32;
/// The largest code.
const TOP: f32 = 15.0;
/// Factors that are tried put the largest scale at the largest step over these.
pub(super) const SHRINKS: [f32; 2] = [1.0, 0.95];

/// Eight groups of 32 four-bit codes: `value = d * scale * q - dmin * min`.
pub static Q4_K: QuantType = QuantType::of::<Q4KBlocks, LEN, BYTES>("q4_k", 12);

/// Codes of pairs of groups: one in the low nibbles of 32 bytes, one in the high.
#[inline(always)]
pub(super) fn pair_codes(bytes: &[u8], codes: &mut [u8]) {
    let pairs = bytes.chunks_exact(GROUP_LEN);
    for (bytes, codes) in pairs.zip(codes.chunks_exact_mut(2 * GROUP_LEN)) {
        nibble_codes(bytes, codes);
    }
}

/// Factors, scales and minima of a block that begins with them.
#[inline(always)]
pub(super) fn steps(block: &[u8]) -> BlockScales {
    let mut all = BlockScales {
        scale: read_bits(block),
        min: read_bits(&block[2..]),
        ..BlockScales::default()
    };
    for (g, (scale, min)) in unpack_scales(&block[4..16]).into_iter().enumerate() {
        (all.scales[g], all.mins[g]) = (scale as i8, min as i8);
    }
    all
}

/// Values of the codes of a block that begins with factors, scales and minima.
#[inline(always)]
pub(super) fn restore_groups<L: Widen>(block: &[u8], codes: &[u8; LEN], out: &mut [f32; LEN]) {
    let (d, dmin) = (read_f16(block), read_f16(&block[2..]));
    let groups = bytemuck::cast_slice(codes).chunks_exact(GROUP_LEN);
    let groups = groups.zip(out.chunks_exact_mut(GROUP_LEN));
    for ((codes, out), (scale, min)) in groups.zip(unpack_scales(&block[4..16])) {
        restore_line::<L>(codes, d * f32::from(scale), dmin * f32::from(min), out);
    }
}

/// Six-bit scale and minimum of each group, from their twelve packed bytes: groups 0 to 3 in
/// the low six bits of bytes 0-3 and 4-7, groups 4 to 7 in nibbles of bytes 8-11 topped with
/// the high two bits of the first eight.
#[inline(always)]
pub(super) fn unpack_scales(packed: &[u8]) -> [(u8, u8); GROUPS] {
    std::array::from_fn(|g| {
        if g < 4 {
            (packed[g] & 63, packed[g + 4] & 63)
        } else {
            let low = packed[g + 4];
            (low & 15 | packed[g - 4] >> 6 << 4, low >> 4 | packed[g] >> 6 << 4)
        }
    })
}

/// The inverse of [`unpack_scales`].
#[inline(always)]
pub(super) fn pack_scales(scales: &[(u8, u8); GROUPS], packed: &mut [u8]) {
    for g in 0..4 {
        let ((scale, min), (high_scale, high_min)) = (scales[g], scales[g + 4]);
        packed[g] = scale | high_scale >> 4 << 6;
        packed[g + 4] = min | high_min >> 4 << 6;
        packed[g + 8] = high_scale & 15 | (high_min & 15) << 4;
    }
}

struct Q4KBlocks;

impl BlockFormat<LEN, BYTES> for Q4KBlocks {
    const PACKING: Option<&'static Packing> = Some(&packing! {
        code_layout: CodeLayout::SuperFourMin,
        block: (LEN, BYTES),
        codes: |block, codes| pair_codes(&block[16..], codes),
        scales: |block| steps(block),
    });

    #[inline(always)]
    fn restore<L: Widen>(block: &[u8; BYTES], out: &mut [f32; LEN]) {
        let mut codes = [0; LEN];
        pair_codes(&block[16..], &mut codes);
        restore_groups::<L>(block, &codes, out);
    }

    #[inline(always)]
    fn store(values: &WeightedBlock<LEN>, block: &mut [u8; BYTES]) {
        let lines = fit_lines::<LEN, GROUP_LEN, GROUPS>(values, TOP, 63.0, &SHRINKS);
        store_steps(&lines, block);
        for (g, group) in values.groups::<GROUP_LEN>().enumerate() {
            let bytes = &mut block[16 + g / 2 * GROUP_LEN..][..GROUP_LEN];
            for (byte, &value) in bytes.iter_mut().zip(group.values) {
                *byte |= (lines.line(g).code(value, TOP) as u8) << (g % 2 * 4);
            }
        }
    }
}

/// Factors and packed scales, which Q5_K begins with too.
#[inline(always)]
pub(super) fn store_steps(lines: &FittedLines<GROUPS>, block: &mut [u8]) {
    store_f16(lines.factors[0], block);
    store_f16(lines.factors[1], &mut block[2..]);
    let scales = lines.steps.map(|[scale, min]| (scale as u8, min as u8));
    pack_scales(&scales, &mut block[4..16]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_scales_come_back() {
        let scales = std::array::from_fn(|g| (g as u8 * 9 % 64, 63 - g as u8 * 7 % 64));
        let mut packed = [0; 12];
        pack_scales(&scales, &mut packed);
        assert_eq!(unpack_scales(&packed), scales);
    }
}
