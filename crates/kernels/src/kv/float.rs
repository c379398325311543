//! Floating-point keys and values.
//!
//! f32 and F16: keys `[dim][block]`, values `[block][stride]`. BF16 pairs neighbours, so that
//! four bytes are a unit of the hardware's dot product: keys `[pairs of the head][block][2]`,
//! values `[pairs of positions][stride][2]`.
#![allow(unsafe_code)]

use super::{Format, KvLayout, Unpack};
use crate::lanes::{LANES, widen::Widen};

pub(super) static F32_FORMAT: Format = Format {
    name: "f32",
    key_bytes: |layout| 4 * layout.dim * layout.block,
    value_bytes: |layout| 4 * layout.value_stride() * layout.block,
    store_key: |layout, keys, slot, key| {
        put_key(cast(keys), layout.block, slot, key.iter().copied());
    },
    store_value: |layout, values, slot, value| {
        put_value(cast(values), layout.value_stride(), slot, value.iter().copied());
    },
};

pub(super) static BF16_FORMAT: Format = Format {
    name: "bf16",
    key_bytes: |layout| 4 * layout.pairs() * layout.block,
    value_bytes: |layout| 2 * layout.value_stride() * layout.block,
    store_key: store_bf16_key,
    store_value: store_bf16_value,
};

pub(super) static F16_FORMAT: Format = Format {
    name: "f16",
    key_bytes: |layout| 2 * layout.dim * layout.block,
    value_bytes: |layout| 2 * layout.value_stride() * layout.block,
    store_key: |layout, keys, slot, key| {
        put_key(cast(keys), layout.block, slot, key.iter().map(|v| f16_bits(*v)));
    },
    store_value: |layout, values, slot, value| {
        let value = value.iter().map(|v| f16_bits(*v));
        put_value(cast(values), layout.value_stride(), slot, value);
    },
};

fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn put_key<T>(keys: &mut [T], block: usize, slot: usize, key: impl Iterator<Item = T>) {
    for (column, value) in keys.chunks_exact_mut(block).zip(key) {
        column[slot] = value;
    }
}

fn put_value<T>(values: &mut [T], stride: usize, slot: usize, value: impl Iterator<Item = T>) {
    for (to, value) in values[slot * stride..].iter_mut().zip(value) {
        *to = value;
    }
}

fn bf16_bits(value: f32) -> u32 {
    u32::from(half::bf16::from_f32(value).to_bits())
}

fn f16_bits(value: f32) -> u16 {
    half::f16::from_f32(value).to_bits()
}

fn store_bf16_key(layout: &KvLayout, keys: &mut [u8], slot: usize, key: &[f32]) {
    let keys: &mut [u32] = cast(keys);
    let (pairs, last) = key.as_chunks::<2>();
    for (column, [low, high]) in keys.chunks_exact_mut(layout.block).zip(pairs) {
        column[slot] = bf16_bits(*low) | bf16_bits(*high) << 16;
    }
    if let [last] = last {
        keys[pairs.len() * layout.block + slot] = bf16_bits(*last);
    }
}

/// An even position clears its neighbour, of which nothing is known yet but that its weight is
/// zero: whatever an earlier sequence left there must not be multiplied with it.
fn store_bf16_value(layout: &KvLayout, values: &mut [u8], slot: usize, value: &[f32]) {
    let stride = layout.value_stride();
    let pairs: &mut [u32] = cast(values);
    for (pair, value) in pairs[slot / 2 * stride..].iter_mut().zip(value) {
        *pair = match slot % 2 {
            0 => bf16_bits(*value),
            _ => *pair & 0xffff | bf16_bits(*value) << 16,
        };
    }
}

/// Half precision.
pub(crate) struct F16;

impl Unpack for F16 {
    #[inline(always)]
    fn keys<L: Widen>(layout: &KvLayout, head: &[u8], room: &mut [f32], ahead: *const u8) {
        widen::<L>(&head[..2 * layout.dim * layout.block], room, ahead);
    }

    #[inline(always)]
    fn values<L: Widen>(
        layout: &KvLayout,
        head: &[u8],
        positions: usize,
        room: &mut [f32],
        ahead: *const u8,
    ) {
        let start = layout.value_start();
        let bytes = 2 * layout.value_stride() * positions;
        widen::<L>(&head[start..][..bytes], room, ahead.wrapping_add(start));
    }
}

#[inline(always)]
fn widen<L: Widen>(halves: &[u8], room: &mut [f32], ahead: *const u8) {
    let (room, _) = room.as_chunks_mut::<LANES>();
    let (halves, _) = halves.as_chunks::<{ 2 * LANES }>();
    for (i, (to, from)) in room.iter_mut().zip(halves).enumerate() {
        if i % 2 == 0 {
            L::prefetch(ahead.wrapping_add(i * 2 * LANES));
        }
        // SAFETY: `from` is 16 values of two bytes.
        unsafe { L::load_f16_at(from.as_ptr().cast()) }.store(to);
    }
}
