//! Q4_K: 256 four-bit codes in eight groups of 32, each with a six-bit scale and a six-bit
//! minimum, under two f16 factors. Follows `dequantize_row_q4_K` of ggml.

use super::{QuantType, read_f16};
use half::f16;

const LEN: usize = 256;
const BYTES: usize = 144;
const GROUPS: usize = 8;
const GROUP_LEN: usize = 32;

/// Eight groups of 32 four-bit codes: `value = d * scale * q - dmin * min`.
pub static Q4_K: QuantType = QuantType {
    name: "q4_k",
    gguf_id: 12,
    block_len: LEN,
    block_bytes: BYTES,
    dequantize: Some(dequantize),
    quantize: Some(quantize),
};

/// Six-bit scale and minimum of each group, from their twelve packed bytes: groups 0 to 3 in
/// the low six bits of bytes 0-3 and 4-7, groups 4 to 7 in nibbles of bytes 8-11 topped with
/// the high two bits of the first eight.
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
pub(super) fn pack_scales(scales: &[(u8, u8); GROUPS], packed: &mut [u8]) {
    for g in 0..4 {
        let ((scale, min), (high_scale, high_min)) = (scales[g], scales[g + 4]);
        packed[g] = scale | high_scale >> 4 << 6;
        packed[g + 4] = min | high_min >> 4 << 6;
        packed[g + 8] = high_scale & 15 | (high_min & 15) << 4;
    }
}

fn dequantize(src: &[u8], dst: &mut [f32]) {
    for (block, out) in src.chunks_exact(BYTES).zip(dst.chunks_exact_mut(LEN)) {
        let (d, dmin) = (read_f16(block), read_f16(&block[2..]));
        let scales = unpack_scales(&block[4..16]);
        // Two groups share 32 bytes: one in the low nibbles, one in the high.
        for (pair, out) in out.chunks_exact_mut(2 * GROUP_LEN).enumerate() {
            let codes = &block[16 + pair * GROUP_LEN..][..GROUP_LEN];
            let (low, high) = out.split_at_mut(GROUP_LEN);
            for (half, (out, shift)) in [(low, 0), (high, 4)].into_iter().enumerate() {
                let (scale, min) = scales[2 * pair + half];
                let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
                for (out, code) in out.iter_mut().zip(codes) {
                    *out = scale * f32::from(code >> shift & 15) - min;
                }
            }
        }
    }
}

/// Scale and minimum (as a positive amount subtracted) that map a group onto `0..=levels`.
pub(super) fn range(values: &[f32], levels: f32) -> (f32, f32) {
    let low = values.iter().fold(0.0f32, |m, &v| m.min(v));
    let high = values.iter().fold(0.0f32, |m, &v| m.max(v));
    ((high - low) / levels, -low)
}

fn quantize(src: &[f32], _importance: Option<&[f32]>, dst: &mut [u8]) {
    for (values, block) in src.chunks_exact(LEN).zip(dst.chunks_exact_mut(BYTES)) {
        let groups: [(f32, f32); GROUPS] =
            std::array::from_fn(|g| range(&values[g * GROUP_LEN..][..GROUP_LEN], 15.0));
        let largest = groups.iter().fold((0.0f32, 0.0f32), |m, g| (m.0.max(g.0), m.1.max(g.1)));
        let d = f16::from_f32(largest.0 / 63.0);
        let dmin = f16::from_f32(largest.1 / 63.0);
        let step = |value: f32, unit: f16| {
            if unit.to_f32() == 0.0 { 0 } else { (value / unit.to_f32()).round().min(63.0) as u8 }
        };
        let scales = groups.map(|(scale, min)| (step(scale, d), step(min, dmin)));
        block[..2].copy_from_slice(&d.to_le_bytes());
        block[2..4].copy_from_slice(&dmin.to_le_bytes());
        pack_scales(&scales, &mut block[4..16]);
        let code = |index: usize| {
            let (scale, min) = scales[index / GROUP_LEN];
            let scale = d.to_f32() * f32::from(scale);
            let shifted = values[index] + dmin.to_f32() * f32::from(min);
            if scale == 0.0 { 0 } else { (shifted / scale).round().clamp(0.0, 15.0) as u8 }
        };
        for (i, byte) in block[16..].iter_mut().enumerate() {
            let first = i / GROUP_LEN * 2 * GROUP_LEN + i % GROUP_LEN;
            *byte = code(first) | code(first + GROUP_LEN) << 4;
        }
    }
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
