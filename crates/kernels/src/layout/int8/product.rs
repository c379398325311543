//! The product of quantised activations and packed weights.
#![allow(unsafe_code)]

use super::activations::RECORD;
use super::code_layouts::with_code_layout;
use super::packed::{BlockBytes, code_layout, group_bytes};
use super::parts::{Planes, Scales};
use super::tile::{self, Ahead, Sums};
use super::unpacked::{SCRATCH, UnpackedForm, Unpacking, form, with_unpacked};
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

/// Rows from which many groups of weights stay in a core's cache while a panel, in the nearest one,
/// passes over them. Of fewer rows, all panels pass over some blocks of a group.
const MANY: usize = 64;

/// Blocks of weights that a panel passes over at a time, where it does not pass only once. Of fewer
/// than `MANY` rows, half as many: the first blocks of a tile are not prefetched.
const RUN: usize = 4 * SPAN;
const SHORT_RUN: usize = 2 * SPAN;

/// Most rows of a panel.
const PANEL: usize = 12;

/// Most sums that are added to at a time.
const SUMS: usize = HELD_GROUPS * PANEL;

/// How far ahead of a single pass weights are prefetched, in bytes. A quarter of it does not hide
/// the latency of memory while eight rows are computed; twice as much changes nothing.
const AHEAD: usize = 6 << 10;

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
    let layout = code_layout(weights.ty);
    let form = form(layout);
    let groups = Groups::new(&weights, group_bytes(layout, weights.cols), tile);
    let most = (CACHED / (4 * words(1, weights.cols))).max(MANY);
    for rows in runs(inputs.rows, I::ROWS, most) {
        let panels = Panels { inputs, rows };
        if I::unpacks(form, inputs.rows) {
            with_unpacked!(form, P, S => {
                let unpacking = Unpacking::of::<I>(layout);
                panels.product::<I, P, S>(Some(unpacking), &groups, tile);
            });
        } else {
            with_code_layout!(layout, P, S => panels.product::<I, P, S>(None, &groups, tile));
        }
    }
}

/// Some panels of inputs.
struct Panels<'a> {
    inputs: Inputs<'a>,
    rows: Range<usize>,
}

impl Panels<'_> {
    /// First row and width of each panel.
    #[inline(always)]
    fn panels<I: Tiles>(&self) -> impl Iterator<Item = (usize, usize)> {
        let first = self.rows.start;
        panels(self.rows.len(), I::ROWS).map(move |(row, width)| (first + row, width))
    }

    /// Outputs with weights whose planes and scales are `P` and `S`, by unpacking if it is given.
    #[inline(always)]
    fn product<I: Tiles, P: Planes, S: Scales>(
        &self,
        unpacking: Option<Unpacking>,
        groups: &Groups,
        tile: &mut Tile<'_, f32>,
    ) {
        // The second condition is a constant, and leaves out code that is never reached.
        if self.inputs.rows < MANY || I::UNPACKS && !P::BYTES {
            self.product_of_some::<I, P, S>(unpacking, groups, tile);
        } else {
            self.product_of_many::<I, P, S>(unpacking, groups, tile);
        }
    }

    /// Outputs of few panels: some blocks of weights at a time, unpacked once for all panels, while
    /// the next are prefetched. A single panel passes over all of them.
    #[inline(always)]
    fn product_of_some<I: Tiles, P: Planes, S: Scales>(
        &self,
        unpacking: Option<Unpacking>,
        groups: &Groups,
        tile: &mut Tile<'_, f32>,
    ) {
        let mut passes = 0;
        for (_, width) in self.panels::<I>() {
            passes += tile::passes::<I>(width);
        }
        let all = self.inputs.cols / BLOCK;
        let once = passes == 1 && unpacking.is_none();
        let run = if once { all } else { SHORT_RUN };
        let packed = unpacking.map_or(BlockBytes::of::<P, S>(), |unpacking| unpacking.packed);
        let bytes = unpacking.map_or(0, |unpacking| unpacking.unpacked.bytes(SHORT_RUN));
        SCRATCH.with_borrow_mut(|scratch| {
            let (memory, sums) = scratch.fit::<SUMS>(bytes);
            for group in 0..groups.count {
                for first in (0..all).step_by(run) {
                    let blocks = first..all.min(first + run);
                    let at = groups.bytes(group).wrapping_add(packed.bytes(first));
                    let bytes = packed.bytes(blocks.len());
                    let later = if once { AHEAD } else { bytes };
                    let next = Ahead { from: at.wrapping_add(later), bytes };
                    let mut run =
                        BlockRun { inputs: self.inputs, blocks, weights: at, ahead: None };
                    if let Some(unpacking) = unpacking {
                        // SAFETY: `Layout::product` checked the weights to have all groups of the
                        // tile, each with all blocks of the inputs.
                        unsafe { unpacking.unpack(at, run.blocks.len(), memory) };
                        run.weights = memory.as_ptr();
                    }
                    self.add::<I, P, S>(run, (next, passes), sums);
                }
                put_sums(tile, self.rows.start, &[group], &sums[..self.rows.len()]);
            }
        });
    }

    /// Adds a run of blocks to the sums of all rows. Blocks pass `passes` times, while the next are
    /// prefetched.
    #[inline(always)]
    fn add<I: Tiles, P: Planes, S: Scales>(
        &self,
        mut run: BlockRun<'_>,
        (next, passes): (Ahead, usize),
        sums: &mut [[f32; GROUP]],
    ) {
        let mut pass = 0;
        for (row, width) in self.panels::<I>() {
            let own = pass..pass + tile::passes::<I>(width);
            pass = own.end;
            run.ahead = Some(next.part(own, passes));
            I::add::<P, S>(&run, row, width, &mut sums[row - self.rows.start..][..width]);
        }
    }

    /// Outputs of many panels, those of a panel one after the other, so that they are written side
    /// by side.
    #[inline(always)]
    fn product_of_many<I: Tiles, P: Planes, S: Scales>(
        &self,
        unpacking: Option<Unpacking>,
        groups: &Groups,
        tile: &mut Tile<'_, f32>,
    ) {
        let all = self.inputs.cols / BLOCK;
        let each = unpacking.map_or(BlockBytes::of::<P, S>(), |unpacking| unpacking.unpacked);
        let stride = each.bytes(all);
        SCRATCH.with_borrow_mut(|scratch| {
            for held in held_groups(groups.count, stride, 1) {
                let bytes = if unpacking.is_some() { held.len() * stride } else { 0 };
                let (memory, sums) = scratch.fit::<SUMS>(bytes);
                let mut at = groups.bytes(held.start);
                if let Some(unpacking) = unpacking {
                    for (group, to) in held.clone().zip(memory.chunks_exact_mut(stride)) {
                        // SAFETY: as above.
                        unsafe { unpacking.unpack(groups.bytes(group), all, to) };
                    }
                    at = memory.as_ptr();
                }
                self.add_held::<I, P, S>(held, (at, each), sums, tile);
            }
        });
    }

    /// Outputs of the groups `held`, of which the first is at `at`.
    #[inline(always)]
    fn add_held<I: Tiles, P: Planes, S: Scales>(
        &self,
        held: Range<usize>,
        (at, each): (*const u8, BlockBytes),
        sums: &mut [[f32; GROUP]],
        tile: &mut Tile<'_, f32>,
    ) {
        let all = self.inputs.cols / BLOCK;
        for (row, width) in self.panels::<I>() {
            for first in (0..all).step_by(RUN) {
                let blocks = first..all.min(first + RUN);
                let at = at.wrapping_add(each.bytes(first));
                let sums = sums.chunks_exact_mut(width);
                for ((index, group), sums) in held.clone().enumerate().zip(sums) {
                    let weights = at.wrapping_add(index * each.bytes(all));
                    let (inputs, blocks) = (self.inputs, blocks.clone());
                    let run = BlockRun { inputs, blocks, weights, ahead: None };
                    I::add::<P, S>(&run, row, width, sums);
                    if run.blocks.end == all {
                        put_sums(tile, row, &[group], sums);
                    }
                }
            }
        }
    }
}

/// A run of blocks of all rows of inputs, and of a group of weights with the address of its first
/// block.
struct BlockRun<'a> {
    inputs: Inputs<'a>,
    blocks: Range<usize>,
    weights: *const u8,
    /// As in [`Sums`].
    ahead: Option<Ahead>,
}

impl BlockRun<'_> {
    /// Adds the products of a panel of `M` rows from `row` to `sums`. The first run of blocks
    /// begins from zero.
    #[inline(always)]
    fn add_panel<I: IntLanes, P: Planes, S: Scales, const M: usize>(
        &self,
        row: usize,
        sums: &mut [[f32; GROUP]],
    ) {
        let panel = &self.inputs.words[row * self.inputs.cols / BLOCK * RECORD..];
        let panel = &panel[M * self.blocks.start * RECORD..][..M * self.blocks.len() * RECORD];
        I::enter(Sums::<P, S, M> {
            panel: panel.as_ptr(),
            weights: self.weights,
            blocks: self.blocks.len(),
            goes_on: self.blocks.start > 0,
            ahead: self.ahead,
            sums: sums.first_chunk_mut().expect("a sum for each output"),
            layout: PhantomData,
        });
    }
}

/// Which register tiles an instruction set has. Only what is named here is compiled.
trait Tiles: IntLanes {
    /// All codes are unpacked for `MANY` rows.
    const UNPACKS: bool;

    /// Weights of a form are unpacked for `rows` rows.
    fn unpacks(form: UnpackedForm, rows: usize) -> bool;

    /// Adds the products of a panel of `width` rows from `row` on.
    fn add<P: Planes, S: Scales>(
        run: &BlockRun<'_>,
        row: usize,
        width: usize,
        sums: &mut [[f32; GROUP]],
    );
}

/// The widths of panels of packed codes and of those of bytes; whether all are bytes with `MANY`
/// rows, and which are unpacked for how many: by default all, for more than a panel of packed
/// codes has.
macro_rules! tiles {
    ($lanes:ty: packed $($few:literal)*, bytes $($width:literal)*) => {
        tiles!($lanes: packed $($few)*, bytes $($width)*, unpacked true, |form, rows| {
            !form.bytes && ![$($few),*].contains(&rows)
        });
    };
    (
        $lanes:ty: packed $($few:literal)*, bytes $($width:literal)*, unpacked $many:literal,
        |$form:ident, $rows:ident| $unpacks:expr
    ) => {
        impl Tiles for $lanes {
            const UNPACKS: bool = $many;

            #[inline(always)]
            fn unpacks($form: UnpackedForm, $rows: usize) -> bool {
                $unpacks
            }

            #[inline(always)]
            fn add<P: Planes, S: Scales>(
                run: &BlockRun<'_>,
                row: usize,
                width: usize,
                sums: &mut [[f32; GROUP]],
            ) {
                // Not one `match`, of which all tiles would be compiled.
                if P::BYTES {
                    match width {
                        $($width => run.add_panel::<Self, P, S, $width>(row, sums),)*
                        _ => unreachable!("no panel of bytes has {width} rows"),
                    }
                } else {
                    match width {
                        $($few => run.add_panel::<Self, P, S, $few>(row, sums),)*
                        _ => unreachable!("no panel of packed codes has {width} rows"),
                    }
                }
            }
        }
    };
}

tiles!(ScalarInt: packed 1, bytes 1);
// Of a group, AVX2's tile takes half at a time where there are more than two rows.
#[cfg(target_arch = "x86_64")]
tiles!(Avx2: packed 1 2 3 4, bytes 1 2 3 4 5 6);
#[cfg(target_arch = "x86_64")]
tiles!(AvxVnni: packed 1 2 3 4, bytes 1 2 3 4, unpacked true, |form, rows| {
    unpacks_beside_dots(form, rows)
});
// Twelve rows leave all sums in registers, integers and f32, and most codes are unpacked beside the
// products.
#[cfg(target_arch = "x86_64")]
tiles!(Avx512Vnni: packed 1 2 3 4 5 6 8 12, bytes 1 2 3 4 5 6 8 12, unpacked false, |form, rows| {
    form.costly && rows > 24
});
#[cfg(target_arch = "aarch64")]
tiles!(Neon: packed 1 2 3 4, bytes 1 2 3 4);
#[cfg(target_arch = "aarch64")]
tiles!(NeonDot: packed 1 2 3 4, bytes 1 2 3 4, unpacked true, |form, rows| {
    unpacks_beside_dots(form, rows)
});

/// As [`Tiles::unpacks`] with dot products of bytes, which leave time to unpack most codes for a
/// few panels.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn unpacks_beside_dots(form: UnpackedForm, rows: usize) -> bool {
    !form.bytes && rows > if form.costly { 4 } else { 16 }
}
