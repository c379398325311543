//! Values that are part of the keys. One copy is stored, in the layout of keys, and transposed to
//! the layout of values run by run, in memory that fits the first caches. The bits of the values do
//! not change.

use crate::kv::{GROUP, KvLayout, KvType};
use crate::lanes::LANES;
use crate::lanes::transpose::{Row, Transpose};

/// Words of one unit of sixteen neighbouring positions, or zeros.
const NOTHING: &Row = &[0; 4 * LANES];

/// Writes the values of the first `count` positions of a block, of which `keys` are the keys of one
/// head, as [`KvLayout::store`] would.
#[inline(always)]
pub(super) fn values<T: Transpose>(layout: &KvLayout, keys: &[u8], count: usize, out: &mut [u8]) {
    match layout.ty {
        KvType::F32 => words::<T, 1>(layout, keys, count, out),
        KvType::Bf16 => words::<T, 2>(layout, keys, count, out),
        KvType::F16 => elements::<2>(layout, keys, count, out),
        KvType::Q8_0 => {
            elements::<1>(layout, keys, count, out);
            scales(layout, keys, count, out);
        }
        KvType::Fp8 => unreachable!("layouts are checked"),
    }
}

/// Units of four bytes, of `WIDTH` values: squares of sixteen units by sixteen positions are
/// transposed, so that rows are positions.
#[inline(always)]
fn words<T: Transpose, const WIDTH: usize>(
    layout: &KvLayout,
    keys: &[u8],
    count: usize,
    out: &mut [u8],
) {
    let units = layout.dim.div_ceil(WIDTH);
    let stride = 4 * layout.value_stride();
    let mut square = [[0; 4 * LANES]; LANES];
    for unit in (0..layout.value_stride() / WIDTH).step_by(LANES) {
        for position in (0..count).step_by(LANES) {
            let mut rows = [NOTHING; LANES];
            for (i, row) in rows.iter_mut().enumerate() {
                if unit + i < units {
                    let at = 4 * ((unit + i) * layout.block + position);
                    *row = keys[at..].first_chunk().expect("whole sixteens of positions");
                }
            }
            T::transpose(rows, &mut square);
            let left = (count - position).min(LANES);
            let out = &mut out[position / WIDTH * stride + 4 * WIDTH * unit..];
            if WIDTH == 1 {
                for (row, out) in square[..left].iter().zip(out.chunks_mut(stride)) {
                    out[..4 * LANES].copy_from_slice(row);
                }
            } else {
                // A last single position is paired with zeros.
                square[left..].fill([0; 4 * LANES]);
                let pairs = square.as_chunks().0.iter().take(left.div_ceil(2));
                for ([even, odd], out) in pairs.zip(out.chunks_mut(stride)) {
                    pair(even, odd, &mut out[..8 * LANES]);
                }
            }
        }
    }
}

/// Transposes pairs of neighbouring values at two positions to pairs of positions.
#[inline(always)]
fn pair(even: &Row, odd: &Row, out: &mut [u8]) {
    let both = even.as_chunks::<2>().0.iter().zip(odd.as_chunks::<2>().0);
    for (out, (even, odd)) in out.as_chunks_mut::<4>().0.iter_mut().zip(both) {
        let (even, odd) = (u16::from_le_bytes(*even), u16::from_le_bytes(*odd));
        *out = (u32::from(even) | u32::from(odd) << 16).to_le_bytes();
    }
}

/// Single values of `N` bytes.
#[inline(always)]
fn elements<const N: usize>(layout: &KvLayout, keys: &[u8], count: usize, out: &mut [u8]) {
    let columns = keys.as_chunks::<N>().0.chunks_exact(layout.block).take(layout.value_dim());
    let rows = out.as_chunks_mut::<N>().0;
    for (d, column) in columns.enumerate() {
        for (position, value) in column.iter().enumerate().take(count) {
            rows[position * layout.value_stride() + d] = *value;
        }
    }
}

/// The scales of groups of values. The last group may contain inputs that are not values.
#[inline(always)]
fn scales(layout: &KvLayout, keys: &[u8], count: usize, out: &mut [u8]) {
    let groups = layout.value_dim().div_ceil(GROUP);
    let from = keys[layout.key_scales()..].as_chunks::<2>().0.chunks_exact(layout.block);
    let to = out[layout.value_scales()..].as_chunks_mut::<2>().0;
    for (group, column) in from.enumerate().take(groups) {
        for (position, scale) in column.iter().enumerate().take(count) {
            to[position * groups + group] = *scale;
        }
    }
}
