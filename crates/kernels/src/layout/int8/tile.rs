//! The register tile of products of bytes: a panel of activation rows by some groups of weights.
#![allow(unsafe_code)]

use super::activations::{RECORD, word};
use super::packed::code_bytes;
use super::parts::{At, Planes, Scales, zero};
use super::unpacked::lowered;
use crate::lanes::LANES;
use crate::lanes::int::{IntLanes, IntRows, Task};
use crate::lanes::widen::LanePart;
use crate::layout::operands::GROUP;
use crate::quant::SPAN;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Weights that are prefetched during the products, where they come from memory and there are too
/// few rows to hide it.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub from: *const u8,
    pub bytes: usize,
}

impl Ahead {
    /// What some of `all` passes ask for, each for as large a part as the others.
    #[inline(always)]
    pub fn part(self, passes: Range<usize>, all: usize) -> Self {
        let (from, to) = (passes.start * self.bytes / all, passes.end * self.bytes / all);
        Self { from: self.from.wrapping_add(from), bytes: to - from }
    }
}

/// How often the weights of a group pass over a panel of `width` rows: the lanes of few rows leave
/// registers for the whole group.
#[inline(always)]
pub(super) const fn passes<I: IntLanes>(width: usize) -> usize {
    if width <= 2 { 1 } else { LANES / I::Tile::WIDTH }
}

/// The work of one register tile: `M` rows of activations, a panel, by a group of weights, both of
/// `blocks` blocks.
pub(super) struct Sums<'a, P, S, const M: usize> {
    /// Records of the blocks.
    pub panel: *const u32,
    /// The first block.
    pub weights: *const u8,
    pub blocks: usize,
    /// `sums` has those of the blocks before.
    pub goes_on: bool,
    pub ahead: Option<Ahead>,
    pub sums: &'a mut [[f32; GROUP]; M],
    pub layout: PhantomData<(P, S)>,
}

impl<P: Planes, S: Scales, const M: usize> Task for Sums<'_, P, S, M> {
    type Output = ();

    #[inline(always)]
    fn run<I: IntLanes>(mut self) {
        let passes = passes::<I>(M);
        if passes == 1 {
            return self.add_rows::<I>(0);
        }
        let ahead = self.ahead;
        for pass in 0..passes {
            self.ahead = ahead.map(|ahead| ahead.part(pass..pass + 1, passes));
            self.add_rows::<I::Tile>(pass * I::Tile::WIDTH);
        }
    }
}

impl<P: Planes, S: Scales, const M: usize> Sums<'_, P, S, M> {
    /// Adds up the outputs of weight rows from `row` of the group on.
    #[inline(always)]
    fn add_rows<I: IntRows>(&mut self, row: usize) {
        let mut sums = [I::Float::splat(0.0); M];
        // SAFETY: each of `self.sums` has sixteen values, of which `row` begins a part. The
        // weights have all groups of the tile, each with all blocks of the inputs, as
        // `Layout::product` checked, and `unpack` had space for the unpacked ones; the panel was
        // sliced.
        unsafe {
            if self.goes_on {
                for (sum, from) in sums.iter_mut().zip(self.sums.iter()) {
                    *sum = I::Float::load_at(from.as_ptr().add(row));
                }
            }
            add_blocks::<I, P, S, M>(self, row, &mut sums);
            for (sum, to) in sums.iter().zip(self.sums.iter_mut()) {
                sum.store_at(to.as_mut_ptr().add(row));
            }
        }
    }
}

/// How many quads of codes a part of the sums takes.
struct Quads<I, P, S>(PhantomData<(I, P, S)>);

impl<I: IntRows, P: Planes, S: Scales> Quads<I, P, S> {
    /// Quads whose products have the same scale.
    const SCALED: usize = if S::HALVES { 4 } else { 8 };
    /// A divisor of these.
    const PER_PART: usize = match I::PART_MAX {
        Some(max) => match max / (2 * P::MAX_CODE * 127) {
            0 => panic!("a part takes one quad"),
            1 => 1,
            2 | 3 => 2,
            4..8 => 4,
            _ => Self::SCALED,
        },
        None => Self::SCALED,
    };
}

/// Adds quad `J` of a block to the integer sums.
///
/// # Safety
/// A block of weights must be readable for `held`, a record of `M` rows at `x`.
#[inline(always)]
unsafe fn quad<I: IntRows, P: Planes, S: Scales, const M: usize, const J: usize>(
    x: *const u32,
    held: P::Held<I>,
    sums: &mut [I::Sums; M],
    parts: &mut [I::Part; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let w = P::codes::<I, J>(held);
        for (m, (sum, part)) in sums.iter_mut().zip(parts).enumerate() {
            let quad = *x.add(J * M + m) as i32;
            if J.is_multiple_of(Quads::<I, P, S>::PER_PART) {
                *part = I::open(*sum);
            }
            *part = match P::SIGNED {
                true => I::dot_signed(*part, w, quad),
                false => I::dot(*part, w, quad),
            };
            if (J + 1).is_multiple_of(Quads::<I, P, S>::PER_PART) {
                *sum = I::close(*sum, *part);
            }
        }
    }
}

/// Integer sums that take the codes' zero back; `part` 0 is the whole block, 1 and 2 are its
/// halves.
///
/// # Safety
/// A record of `M` rows must be readable at `x`.
#[inline(always)]
unsafe fn start<I: IntRows, P: Planes, const M: usize>(x: *const u32, part: usize) -> [I::Sums; M] {
    let mut sums = [I::start(); M];
    if let Some(zero) = zero::<I, P>() {
        for (m, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = unsafe { I::start_at(x.add((word::TOTAL + part) * M + m), zero) };
        }
    }
    sums
}

/// Adds the blocks of `M` rows and of the weight rows from `row` of a group to their sums.
///
/// # Safety
/// All blocks must be readable in the group and in the panel.
#[inline(always)]
unsafe fn add_blocks<I: IntRows, P: Planes, S: Scales, const M: usize>(
    work: &Sums<'_, P, S, M>,
    row: usize,
    acc: &mut [I::Float; M],
) {
    let mut asked = 0;
    let mut x = work.panel;
    let (mut scales, mut codes) = (work.weights, work.weights);
    for block in 0..work.blocks {
        if block % SPAN == 0 {
            scales = codes;
            codes = codes.wrapping_add(S::BYTES);
        }
        if let Some(Ahead { from, bytes }) = work.ahead {
            while asked * work.blocks < (block + 1) * bytes {
                I::Float::prefetch(from.wrapping_add(asked));
                asked += LINE;
            }
        }
        // SAFETY: `block < blocks`, and the pointers advance a block at a time.
        unsafe {
            let at = Scaling { scales, block: block % SPAN, row, x };
            let held = P::held::<I>(codes.wrapping_add(4 * row), row);
            let mut parts = [I::open(I::zero()); M];
            if S::HALVES {
                let mut a = start::<I, P, M>(x, 1);
                quad::<I, P, S, M, 0>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 1>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 2>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 3>(x, held, &mut a, &mut parts);
                let first = at.first::<I, P, S, M>(&a);
                let mut b = start::<I, P, M>(x, 2);
                quad::<I, P, S, M, 4>(x, held, &mut b, &mut parts);
                quad::<I, P, S, M, 5>(x, held, &mut b, &mut parts);
                quad::<I, P, S, M, 6>(x, held, &mut b, &mut parts);
                quad::<I, P, S, M, 7>(x, held, &mut b, &mut parts);
                at.add::<I, M>(&at.second::<I, P, S, M>(&b, &first), acc);
                at.minima::<I, S, M>(1, acc);
                at.minima::<I, S, M>(2, acc);
            } else {
                let mut a = start::<I, P, M>(x, 0);
                quad::<I, P, S, M, 0>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 1>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 2>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 3>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 4>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 5>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 6>(x, held, &mut a, &mut parts);
                quad::<I, P, S, M, 7>(x, held, &mut a, &mut parts);
                at.add::<I, M>(&at.first::<I, P, S, M>(&a), acc);
                at.minima::<I, S, M>(0, acc);
            }
            x = x.add(M * RECORD);
            codes = codes.add(code_bytes::<P>());
        }
    }
}

/// What the integer sums of a block are worth: where the scales of its span are, which block of the
/// span it is, and the record of the activations.
struct Scaling {
    scales: *const u8,
    block: usize,
    /// First of the weight rows.
    row: usize,
    x: *const u32,
}

/// Everything here is the caller's promise: a record of `M` rows is readable at `x`, and as
/// [`Scales::scale`] and [`Scales::min`] at `scales`.
impl Scaling {
    #[inline(always)]
    fn at(&self, half: usize) -> At {
        At { block: self.block, half, row: self.row }
    }

    /// The scale of what the codes are.
    #[inline(always)]
    unsafe fn scale<I: IntRows, P: Planes, S: Scales>(&self, half: usize) -> I::Float {
        // SAFETY: see above.
        lowered::<I, P>(unsafe { S::scale::<I>(self.scales, self.at(half)) })
    }

    /// Sums of the whole block, or of its first half, times the scales of the weights.
    #[inline(always)]
    unsafe fn first<I: IntRows, P: Planes, S: Scales, const M: usize>(
        &self,
        sums: &[I::Sums; M],
    ) -> [I::Float; M] {
        // SAFETY: see above.
        let scale = unsafe { self.scale::<I, P, S>(0) };
        let mut scaled = [I::Float::splat(0.0); M];
        for (scaled, sum) in scaled.iter_mut().zip(sums) {
            *scaled = match S::SHORT {
                true => I::scaled(*sum, scale),
                false => I::started(*sum).mul(scale),
            };
        }
        scaled
    }

    /// The same of a second half, added to that of the first.
    #[inline(always)]
    unsafe fn second<I: IntRows, P: Planes, S: Scales, const M: usize>(
        &self,
        sums: &[I::Sums; M],
        first: &[I::Float; M],
    ) -> [I::Float; M] {
        // SAFETY: see above.
        let scale = unsafe { self.scale::<I, P, S>(1) };
        let mut scaled = *first;
        for (scaled, sum) in scaled.iter_mut().zip(sums) {
            *scaled = I::started(*sum).mul_add(scale, *scaled);
        }
        scaled
    }

    /// Adds what was scaled, times the scales of the activations.
    #[inline(always)]
    unsafe fn add<I: IntRows, const M: usize>(
        &self,
        scaled: &[I::Float; M],
        acc: &mut [I::Float; M],
    ) {
        for (m, (acc, scaled)) in acc.iter_mut().zip(scaled).enumerate() {
            // SAFETY: see above.
            let unit = unsafe { f32::from_bits(*self.x.add(word::SCALE * M + m)) };
            *acc = scaled.mul_add(I::Float::splat(unit), *acc);
        }
    }

    /// Takes off the minima, if there are any, of part `part` (see [`start`]).
    #[inline(always)]
    unsafe fn minima<I: IntRows, S: Scales, const M: usize>(
        &self,
        part: usize,
        acc: &mut [I::Float; M],
    ) {
        if !S::MINS {
            return;
        }
        // SAFETY: see above.
        let min = unsafe { S::min::<I>(self.scales, self.at(part.max(1) - 1)) };
        for (m, acc) in acc.iter_mut().enumerate() {
            // SAFETY: see above.
            let sum = unsafe { f32::from_bits(*self.x.add((word::SCALED + part) * M + m)) };
            *acc = min.mul_add(I::Float::splat(sum), *acc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::int::scalar::ScalarInt;
    use crate::layout::int8::code_layouts::with_code_layout;
    use crate::quant::TYPES;
    use base::{AlignedVec, Rng};

    /// Packed codes of a block: each a run of one byte, or random.
    fn blocks(bytes: usize) -> impl Iterator<Item = AlignedVec<u8>> {
        let whole = move |byte: u8| {
            let mut block = AlignedVec::zeroed(bytes);
            block.fill(byte);
            block
        };
        let random = move |seed| {
            let mut rng = Rng::new(seed);
            let mut block = AlignedVec::zeroed(bytes);
            block.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
            block
        };
        (0..=u8::MAX).map(whole).chain((0..64).map(random))
    }

    /// The largest magnitude of the codes of quad `J`, as products take them.
    fn largest<P: Planes, const J: usize>(block: &[u8]) -> u32 {
        assert!(block.len() >= code_bytes::<P>());
        // SAFETY: the block has all words and narrow bytes of sixteen rows.
        let codes = unsafe {
            let held = P::held::<ScalarInt>(block.as_ptr(), 0);
            P::codes::<ScalarInt, J>(held)
        };
        let size = |code: u8| match P::SIGNED {
            true => u32::from(code.cast_signed().unsigned_abs()),
            false => u32::from(code),
        };
        codes.into_iter().map(size).max().unwrap()
    }

    /// Checks codes against what is said of them, and the sums of `I` against its parts.
    fn check<I: IntRows, P: Planes, S: Scales>(name: &str) {
        // Loads may be wider than the codes.
        for block in blocks(code_bytes::<P>() + 256) {
            let found = [
                largest::<P, 0>(&block),
                largest::<P, 1>(&block),
                largest::<P, 2>(&block),
                largest::<P, 3>(&block),
                largest::<P, 4>(&block),
                largest::<P, 5>(&block),
                largest::<P, 6>(&block),
                largest::<P, 7>(&block),
            ];
            assert!(found.iter().all(|size| *size <= P::MAX_CODE), "{name}: {found:?}");
        }
        assert!(P::SIGNED || P::MAX_CODE < 128, "{name}: the first factor is signed with VNNI");
        let part = 2 * 127 * P::MAX_CODE * Quads::<I, P, S>::PER_PART as u32;
        assert!(I::PART_MAX.is_none_or(|max| part <= max), "{name}: {part}");
    }

    #[test]
    fn sums_of_sixteen_bits_never_saturate() {
        #[cfg(target_arch = "x86_64")]
        type Narrowest = <crate::lanes::int::x86::Avx2 as IntLanes>::Tile;
        #[cfg(not(target_arch = "x86_64"))]
        type Narrowest = ScalarInt;
        for ty in TYPES {
            let Some(packing) = ty.packing else { continue };
            with_code_layout!(packing.code_layout, P, S => check::<Narrowest, P, S>(ty.name));
        }
    }
}
