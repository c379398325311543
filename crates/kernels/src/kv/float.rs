//! Floating-point keys and values.
//!
//! A unit is one value in f32 and F16. BF16 pairs neighbours, as the hardware's dot product takes
//! them: of the head in keys, of positions in values.

use super::{Format, KvLayout, MAX_HEAD_DIM, Transposed};
use crate::elementwise::bf16_bits;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

pub(super) static F32_FORMAT: Format = Format {
    name: "f32",
    transposed: Some(Transposed {
        unit: 4,
        width: 1,
        scaled: false,
        store_key: |layout, keys, slot, key| {
            put_key(cast(keys), layout.block, slot, key.iter().copied());
        },
        store_value: |layout, values, slot, value| {
            put_value(cast(values), layout.value_stride(), slot, value.iter().copied());
        },
    }),
};

pub(super) static BF16_FORMAT: Format = Format {
    name: "bf16",
    transposed: Some(Transposed {
        unit: 4,
        width: 2,
        scaled: false,
        store_key: store_bf16_key,
        store_value: store_bf16_value,
    }),
};

pub(super) static F16_FORMAT: Format = Format {
    name: "f16",
    transposed: Some(Transposed {
        unit: 2,
        width: 1,
        scaled: false,
        store_key: |layout, keys, slot, key| {
            let halves = to_f16(key);
            put_key(cast(keys), layout.block, slot, halves[..key.len()].iter().copied());
        },
        store_value: |layout, values, slot, value| {
            let halves = to_f16(value);
            let halves = halves[..value.len()].iter().copied();
            put_value(cast(values), layout.value_stride(), slot, halves);
        },
    }),
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

fn to_f16(values: &[f32]) -> [u16; MAX_HEAD_DIM] {
    let mut halves = [0; MAX_HEAD_DIM];
    let to: &mut [half::f16] = halves[..values.len()].reinterpret_cast_mut();
    to.convert_from_f32_slice(values);
    halves
}

fn pair(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

fn store_bf16_key(layout: &KvLayout, keys: &mut [u8], slot: usize, key: &[f32]) {
    let keys: &mut [u32] = cast(keys);
    let (pairs, last) = key.as_chunks::<2>();
    // All pairs first: conversions take vector instructions, scattering does not.
    let mut rounded = [0; MAX_HEAD_DIM / 2];
    for (rounded, [low, high]) in rounded.iter_mut().zip(pairs) {
        *rounded = pair(bf16_bits(*low), bf16_bits(*high));
    }
    for (column, both) in keys.chunks_exact_mut(layout.block).zip(&rounded[..pairs.len()]) {
        column[slot] = *both;
    }
    if let [last] = last {
        keys[pairs.len() * layout.block + slot] = pair(bf16_bits(*last), 0);
    }
}

/// An even position clears its neighbour, of which only the weight is known, which is zero:
/// whatever an earlier sequence left there must not be multiplied with it.
fn store_bf16_value(layout: &KvLayout, values: &mut [u8], slot: usize, value: &[f32]) {
    let stride = layout.value_stride();
    let pairs: &mut [u32] = cast(values);
    let pairs = pairs[slot / 2 * stride..].iter_mut().zip(value);
    if slot.is_multiple_of(2) {
        pairs.for_each(|(both, value)| *both = pair(bf16_bits(*value), 0));
    } else {
        pairs.for_each(|(both, value)| *both = pair(*both as u16, bf16_bits(*value)));
    }
}
