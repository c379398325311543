//! Keys and values as signed bytes with a BF16 scale for every 32 values of a head.
//!
//! Keys: bytes `[dim][block]`, then scales `[groups][block]`. Values: bytes `[block][stride]`,
//! then scales `[block][groups]`. A value is its byte times its scale, exactly.
#![allow(unsafe_code)]

use super::{Format, GROUP, KvLayout, Unpack, largest, scale_bits, scale_value};
use crate::lanes::{LANES, widen::Widen};

pub(super) static FORMAT: Format = Format {
    name: "q8_0",
    key_bytes: |layout| layout.dim * layout.block + 2 * layout.groups() * layout.block,
    value_bytes: |layout| (layout.value_stride() + 2 * layout.groups()) * layout.block,
    store_key,
    store_value,
};

/// Signed bytes in 8 and a scale in 16 bits.
pub(crate) struct Q8_0;

/// Up to 32 values as bytes, and the bits of their scale.
fn quantize(values: &[f32]) -> ([u8; GROUP], u16) {
    let bits = scale_bits(largest(values) / 127.0);
    let scale = scale_value(bits);
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut bytes = [0; GROUP];
    for (byte, value) in bytes.iter_mut().zip(values) {
        *byte = ((value * inverse).round_ties_even() as i8).cast_unsigned();
    }
    (bytes, bits)
}

fn store_key(layout: &KvLayout, keys: &mut [u8], slot: usize, key: &[f32]) {
    let block = layout.block;
    let (columns, scales) = keys.split_at_mut(layout.dim * block);
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
    let (rows, scales) = values.split_at_mut(stride * layout.block);
    let row = rows[slot * stride..][..stride].chunks_exact_mut(GROUP);
    let scales = scales[2 * slot * groups..].chunks_exact_mut(2);
    for ((row, to), values) in row.zip(scales).zip(value.chunks(GROUP)) {
        let (bytes, scale) = quantize(values);
        row.copy_from_slice(&bytes);
        to.copy_from_slice(&scale.to_le_bytes());
    }
}

impl Unpack for Q8_0 {
    #[inline(always)]
    fn keys<L: Widen>(layout: &KvLayout, head: &[u8], room: &mut [f32], ahead: *const u8) {
        let KvLayout { block, dim, .. } = *layout;
        let (columns, scales) = head.split_at(dim * block);
        assert!(scales.len() >= 2 * layout.groups() * block && room.len() >= dim * block);
        for first in (0..block).step_by(LANES) {
            for d in 0..dim {
                let at = d * block + first;
                // Each pass over the block's sixteens asks for its share of the lines.
                if at % 64 == 0 {
                    L::prefetch(ahead.wrapping_add(at));
                }
                // SAFETY: `d < dim`, `first + 16 <= block`, and the sizes are checked above.
                unsafe {
                    let scale = scales.as_ptr().add(2 * (d / GROUP * block + first));
                    let scale = L::load_bf16_at(scale.cast());
                    let value = L::load_i8_at(columns.as_ptr().add(at).cast()).mul(scale);
                    value.store_at(room.as_mut_ptr().add(at));
                }
            }
        }
    }

    #[inline(always)]
    fn values<L: Widen>(
        layout: &KvLayout,
        head: &[u8],
        positions: usize,
        room: &mut [f32],
        ahead: *const u8,
    ) {
        let (stride, groups, start) =
            (layout.value_stride(), layout.groups(), layout.value_start());
        let (rows, scales) = head[start..].split_at(stride * layout.block);
        let rows = rows.chunks_exact(GROUP).zip(scales.as_chunks::<2>().0);
        let room = room.chunks_exact_mut(GROUP).take(positions * groups);
        for (i, (to, (from, scale))) in room.zip(rows).enumerate() {
            if i % 2 == 0 {
                L::prefetch(ahead.wrapping_add(start + i * GROUP));
            }
            let scale = L::splat(scale_value(u16::from_le_bytes(*scale)));
            let (to, _) = to.as_chunks_mut::<LANES>();
            let (from, _) = from.as_chunks::<LANES>();
            for (to, from) in to.iter_mut().zip(from) {
                // SAFETY: `from` is 16 bytes.
                unsafe { L::load_i8_at(from.as_ptr().cast()) }.mul(scale).store(to);
            }
        }
    }
}
