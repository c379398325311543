//! Floating-point keys and values.
//!
//! A unit is one value in f32 and F16. BF16 pairs neighbours, as the hardware's dot product takes
//! them: of the head in keys, of positions in values.

use crate::elementwise::bf16_bits;
use crate::kv::layout::{Format, KvLayout, MAX_HEAD_DIM, Transposed};
use crate::lanes::transpose::Transpose;
use crate::lanes::{LANES, isa_dispatch};
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

#[inline(always)]
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

isa_dispatch! {
    /// Stores sixteen positions from `slot`, a multiple of sixteen, on. The keys and values of a
    /// position begin `apart` values after those of the position before; `values` is empty where
    /// they are part of the keys.
    pub(super) fn store_bf16(
        layout: &KvLayout,
        head: &mut [u8],
        slot: usize,
        keys: &[f32],
        values: &[f32],
        apart: usize,
    ) = store_bf16_body
}

#[inline(always)]
fn store_bf16_body<L: Transpose>(
    layout: &KvLayout,
    head: &mut [u8],
    slot: usize,
    keys: &[f32],
    values: &[f32],
    apart: usize,
) {
    let (key_bytes, value_bytes) = head.split_at_mut(layout.value_start());
    let (columns, _) = key_bytes.as_chunks_mut::<4>();
    for first in (0..layout.dim).step_by(2 * LANES) {
        let dims = first..layout.dim.min(first + 2 * LANES);
        let mut rows = [[0; 4 * LANES]; LANES];
        for (row, key) in rows.iter_mut().zip(keys.chunks(apart)) {
            round_to_bytes(&key[dims.clone()], row);
        }
        let mut turned = [[0; 4 * LANES]; LANES];
        L::transpose(rows.each_ref(), &mut turned);
        let columns = columns[first / 2 * layout.block..].chunks_mut(layout.block);
        for (column, words) in columns.zip(turned).take(dims.len().div_ceil(2)) {
            column[slot..][..LANES].copy_from_slice(words.as_chunks().0);
        }
    }
    let stride = layout.value_stride();
    let pairs = value_bytes.as_chunks_mut::<4>().0.chunks_mut(stride).skip(slot / 2);
    for (pairs, values) in pairs.zip(values.chunks(2 * apart)).take(LANES / 2) {
        let (even, odd) = (&values[..layout.dim], &values[apart..][..layout.dim]);
        for (both, (even, odd)) in pairs.iter_mut().zip(even.iter().zip(odd)) {
            *both = pair(bf16_bits(*even), bf16_bits(*odd)).to_le_bytes();
        }
    }
}

/// Rounds values to BF16.
#[inline(always)]
fn round_to_bytes(values: &[f32], out: &mut [u8; 4 * LANES]) {
    for (out, value) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        *out = bf16_bits(*value).to_le_bytes();
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
