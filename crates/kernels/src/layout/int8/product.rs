//! The product of quantised activations and packed weights.
#![allow(unsafe_code)]

use super::activations::RECORD;
use super::code_layouts::with_code_layout;
use super::packed::{code_bytes, code_layout, group_bytes};
use super::parts::{Planes, Scales};
use super::tile::{Ahead, Sums};
use super::unpacked::{UNPACKED, Unpacked, unpack, unpacked_bytes};
#[cfg(target_arch = "aarch64")]
use crate::lanes::int::neon::{Neon, NeonDot};
use crate::lanes::int::scalar::ScalarInt;
#[cfg(target_arch = "x86_64")]
use crate::lanes::int::x86::{Avx2, Avx512Vnni, AvxVnni};
use crate::lanes::int::{IntLanes, int_dispatch};
use crate::layout::int8::activations::words;
use crate::layout::operands::{GROUP, Inputs, Weights};
use crate::layout::outputs::{Groups, HELD_GROUPS, held_groups, put_sums};
use crate::layout::panels::{panels, runs};
use crate::quant::{BLOCK, SPAN};
use base::Tile;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of activations that stay in a core's cache while weights pass over them.
const CACHED: usize = 640 << 10;

/// Blocks of weights that pass over a panel at a time: the panel stays in the nearest cache.
const RUN: usize = 4 * SPAN;

/// Rows from which weights are held.
const MANY: usize = 16;

/// Most sums of a register tile: rows by groups.
const PANEL: usize = 12;

/// Most groups that pass over a panel together.
const GROUPS: usize = 2;

/// How far ahead of the products of one panel weights are asked for, in bytes.
const AHEAD: usize = 1536;

int_dispatch! {
    /// Computes the outputs of `tile`, as [`Layout::product`](super::Layout::product).
    pub(super) fn dispatch(
        inputs: Inputs<'_>,
        weights: Weights<'_>,
        tile: &mut Tile<'_, f32>,
    ) = body
}

#[inline(always)]
fn body<I: Tiles>(inputs: Inputs<'_>, weights: Weights<'_>, tile: &mut Tile<'_, f32>) {
    with_code_layout!(code_layout(weights.ty), P, S => product::<I, P, S>(inputs, weights, tile));
}

#[inline(always)]
fn product<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    weights: Weights<'_>,
    tile: &mut Tile<'_, f32>,
) {
    let stride = group_bytes(code_layout(weights.ty), weights.cols);
    let groups = Groups::new(&weights, stride, tile);
    let row_bytes = 4 * words(1, weights.cols);
    for rows in runs(inputs.rows, I::ROWS, (CACHED / row_bytes).max(MANY)) {
        let few = rows.end - narrow_rows(rows.len(), I::ROWS, I::WIDE);
        let wide = rows.start..few;
        if rows.len() < MANY {
            product_packed::<I, P, S>(inputs, wide, 1, &groups, tile);
        } else if S::HALVES || P::COSTLY {
            product_unpacked::<I, P, S>(inputs, wide, &groups, tile);
        } else {
            product_held::<I, P, S>(inputs, wide, &groups, tile);
        }
        product_packed::<I, P, S>(inputs, few..rows.end, I::GROUPS, &groups, tile);
    }
}

/// How many of `rows` rows are in panels narrower than `wide`.
#[inline(always)]
fn narrow_rows(rows: usize, most: usize, wide: usize) -> usize {
    let mut narrow = 0;
    for (_, width) in panels(rows, most) {
        narrow += if width < wide { width } else { 0 };
    }
    narrow
}

/// What one of some passes over all blocks of a run prefetches: one pass alone its own weights,
/// several a part each of the groups that come next.
fn ahead(groups: &Groups, run: &BlockRun<'_>, (pass, passes): (usize, usize)) -> Ahead {
    let bytes = groups.stride() / passes;
    let offset = if passes == 1 { AHEAD } else { groups.stride() + pass * bytes };
    Ahead { offset, bytes: bytes.div_ceil(run.blocks.len()) }
}

/// Outputs of `rows` with weights as they are packed, of `together` groups at a time.
#[inline(always)]
fn product_packed<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    together: usize,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    // Each of the groups computed together walks through its own part of the tile.
    let apart = groups.count.div_ceil(together);
    let passes = panels(rows.len(), I::ROWS).count();
    let mut sums = [[0.0; GROUP]; PANEL];
    for group in 0..apart {
        let places = std::array::from_fn(|n| group + n * apart);
        let weights = places.map(|place| groups.bytes(place));
        let mut run = BlockRun { inputs, blocks: 0..inputs.cols / BLOCK, weights, ahead: None };
        for (pass, (panel, width)) in panels(rows.len(), I::ROWS).enumerate() {
            if inputs.rows < MANY {
                run.ahead = Some(ahead(groups, &run, (pass, passes)));
            }
            let (row, sums) = (rows.start + panel, &mut sums[..width * together]);
            I::add::<P, S>(&run, row, width, sums);
            put_sums(tile, row, &places[..together], sums);
        }
    }
}

/// The same with weights that are held.
#[inline(always)]
fn product_held<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    let stride = groups.stride();
    for held in held_groups(groups.count, stride, 1) {
        let held = HeldGroups {
            place: held.start,
            count: held.len(),
            at: groups.bytes(held.start),
            stride,
        };
        held.product::<I, P, S>(inputs, rows.clone(), tile);
    }
}

/// The same with weights that are unpacked once for all of `rows`.
#[inline(always)]
fn product_unpacked<I: Tiles, P: Planes, S: Scales>(
    inputs: Inputs<'_>,
    rows: Range<usize>,
    groups: &Groups,
    tile: &mut Tile<'_, f32>,
) {
    let blocks = inputs.cols / BLOCK;
    let stride = unpacked_bytes::<P, S>(blocks);
    UNPACKED.with_borrow_mut(|unpacked| {
        for held in held_groups(groups.count, stride, 1) {
            let memory = unpacked.fit(held.len() * stride);
            for (group, to) in held.clone().zip(memory.chunks_exact_mut(stride)) {
                // SAFETY: `Layout::product` checked the weights to have all groups of the tile,
                // each with all blocks of the inputs.
                unsafe { unpack::<I, P, S>(groups.bytes(group), blocks, to) };
            }
            let held =
                HeldGroups { place: held.start, count: held.len(), at: memory.as_ptr(), stride };
            held.product::<I, Unpacked<P>, Unpacked<S>>(inputs, rows.clone(), tile);
        }
    });
}

/// Groups of weights that stay in a core's cache.
struct HeldGroups {
    /// Place of the first one in the tile.
    place: usize,
    count: usize,
    /// Address of the first one, and bytes from one to the next.
    at: *const u8,
    stride: usize,
}

impl HeldGroups {
    /// Outputs of `rows`: those of a panel one after the other, so that they are written side by
    /// side.
    #[inline(always)]
    fn product<I: Tiles, P: Planes, S: Scales>(
        &self,
        inputs: Inputs<'_>,
        rows: Range<usize>,
        tile: &mut Tile<'_, f32>,
    ) {
        let all = inputs.cols / BLOCK;
        let mut sums = [[0.0; GROUP]; HELD_GROUPS * PANEL];
        for (panel, width) in panels(rows.len(), I::ROWS) {
            let row = rows.start + panel;
            for first in (0..all).step_by(RUN) {
                let blocks = first..all.min(first + RUN);
                let offset = first / SPAN * (S::BYTES + SPAN * code_bytes::<P>());
                for (group, sums) in sums.chunks_exact_mut(width).take(self.count).enumerate() {
                    let weights = self.at.wrapping_add(group * self.stride + offset);
                    let weights = [weights; GROUPS];
                    let run = BlockRun { inputs, blocks: blocks.clone(), weights, ahead: None };
                    I::add_wide::<P, S>(&run, row, width, sums);
                    if blocks.end == all {
                        put_sums(tile, row, &[self.place + group], sums);
                    }
                }
            }
        }
    }
}

/// A run of blocks of all rows of inputs, and of some groups of weights with the address of the
/// first block of each.
struct BlockRun<'a> {
    inputs: Inputs<'a>,
    blocks: Range<usize>,
    weights: [*const u8; GROUPS],
    /// As in [`Sums`].
    ahead: Option<Ahead>,
}

impl BlockRun<'_> {
    /// Adds the products of a panel of `M` rows from `row` and `N` groups to `sums`: those of the
    /// groups one after the other, row by row. The first run of blocks begins from zero.
    #[inline(always)]
    fn add_panel<I: IntLanes, P: Planes, S: Scales, const N: usize, const M: usize>(
        &self,
        row: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        let panel = &self.inputs.words[row * self.inputs.cols / BLOCK * RECORD..];
        let panel = &panel[M * self.blocks.start * RECORD..][..M * self.blocks.len() * RECORD];
        I::enter(Sums::<P, S, N, M> {
            panel: panel.as_ptr(),
            weights: self.weights.first_chunk().expect("as many groups as any tile has"),
            blocks: self.blocks.len(),
            goes_on: self.blocks.start > 0,
            ahead: self.ahead,
            sums: &mut sums[..M * N],
            layout: PhantomData,
        });
    }
}

/// Which register tiles an instruction set has: one group of weights passes alone over a panel of
/// `WIDE` rows or more, `GROUPS` of them pass together over one of fewer, and `add` adds them up.
/// Only what is named here is compiled.
trait Tiles: IntLanes {
    const WIDE: usize;
    const GROUPS: usize;
    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    );
    /// As `add`, of panels of `WIDE` rows or more.
    fn add_wide<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        Self::add::<P, S>(run, row, width, sums);
    }
}

impl Tiles for ScalarInt {
    const WIDE: usize = 1;
    const GROUPS: usize = 1;

    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        _width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        run.add_panel::<Self, P, S, 1, 1>(row, sums);
    }
}

/// One group alone, of which AVX2's tile takes half at a time.
macro_rules! tiles_of_one_group {
    ($lanes:ty: $($most:literal)?) => {
        impl Tiles for $lanes {
            const WIDE: usize = 1;
            const GROUPS: usize = 1;

            fn add<P: Planes, S: Scales>(
                run: &BlockRun<'_>,
                row: usize,
                width: usize,
                sums: &mut [[f32; GROUP]],
            ) {
                match width {
                    $($most => run.add_panel::<Self, P, S, 1, $most>(row, sums),)?
                    4 => run.add_panel::<Self, P, S, 1, 4>(row, sums),
                    2 => run.add_panel::<Self, P, S, 1, 2>(row, sums),
                    _ => run.add_panel::<Self, P, S, 1, 1>(row, sums),
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
tiles_of_one_group!(Avx2: 6);
#[cfg(target_arch = "x86_64")]
tiles_of_one_group!(AvxVnni:);
#[cfg(target_arch = "aarch64")]
tiles_of_one_group!(Neon:);
#[cfg(target_arch = "aarch64")]
tiles_of_one_group!(NeonDot:);

/// Twelve rows by one group leave all sums in registers, integers and f32, and read codes least
/// often. Few rows read two groups side by side: two streams, of which each is prefetched.
#[cfg(target_arch = "x86_64")]
impl Tiles for Avx512Vnni {
    const WIDE: usize = 8;
    const GROUPS: usize = 2;

    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        match width {
            4 => run.add_panel::<Self, P, S, 2, 4>(row, sums),
            2 => run.add_panel::<Self, P, S, 2, 2>(row, sums),
            1 => run.add_panel::<Self, P, S, 2, 1>(row, sums),
            _ => Self::add_wide::<P, S>(run, row, width, sums),
        }
    }

    fn add_wide<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        match width {
            12 => run.add_panel::<Self, P, S, 1, 12>(row, sums),
            8 => run.add_panel::<Self, P, S, 1, 8>(row, sums),
            _ => unreachable!("a panel of {width} rows is narrow"),
        }
    }
}
