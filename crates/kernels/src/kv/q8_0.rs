//! Keys and values as signed bytes with a BF16 scale for every 32 values of a head.
//!
//! A value is its byte times its scale, exactly.

use crate::kv::layout::{Format, GROUP, KvLayout, Transposed};
use crate::kv::scale::{largest, scale_bits, scale_value};

pub(super) static FORMAT: Format = Format {
    name: "q8_0",
    transposed: Some(Transposed { unit: 1, width: 1, scaled: true, store_key, store_value }),
};

/// 1.5 * 2^23: numbers of this size have no fraction.
const ROUND: f32 = 12_582_912.0;

/// Up to 32 values as bytes, and the bits of their scale.
fn quantize(values: &[f32]) -> ([u8; GROUP], u16) {
    let bits = scale_bits(largest(values) / 127.0);
    let scale = scale_value(bits);
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut bytes = [0; GROUP];
    for (byte, value) in bytes.iter_mut().zip(values) {
        // The sum's last bits are the nearest integer, ties to even; a call of `round` for every
        // value would take most of the time.
        let rounded = value * inverse + ROUND;
        *byte = (rounded.to_bits() & 0xff) as u8;
    }
    (bytes, bits)
}

fn store_key(layout: &KvLayout, keys: &mut [u8], slot: usize, key: &[f32]) {
    let block = layout.block;
    let (columns, scales) = keys.split_at_mut(layout.key_scales());
    let groups = columns.chunks_mut(GROUP * block).zip(scales.chunks_exact_mut(2 * block));
    for ((columns, scales), values) in groups.zip(key.chunks(GROUP)) {
        let (bytes, scale) = quantize(values);
        for (column, byte) in columns.chunks_exact_mut(block).zip(bytes) {
            column[slot] = byte;
        }
        scales[2 * slot..][..2].copy_from_slice(&scale.to_le_bytes());
    }
}

fn store_value(layout: &KvLayout, values: &mut [u8], slot: usize, value: &[f32]) {
    let (stride, groups) = (layout.value_stride(), layout.groups());
    let (rows, scales) = values.split_at_mut(layout.value_scales());
    let row = rows[slot * stride..][..stride].chunks_exact_mut(GROUP);
    let scales = scales[2 * slot * groups..].chunks_exact_mut(2);
    for ((row, to), values) in row.zip(scales).zip(value.chunks(GROUP)) {
        let (bytes, scale) = quantize(values);
        row.copy_from_slice(&bytes);
        to.copy_from_slice(&scale.to_le_bytes());
    }
}
