//! Weights unpacked for more rows than a register tile of packed weights takes: codes as registers
//! hold them, scales as f32.
//!
//! All register tiles read the same weights, so a run of them is unpacked once, into memory that
//! the nearest caches hold. The result is one more code layout: the same kernels compute with it
//! and produce the same bits. Storage types share it where their codes and scales are used alike.
#![allow(unsafe_code)]

use super::code_layouts::with_code_layout;
use super::packed::{BlockBytes, code_bytes};
use super::parts::{At, Planes, Scales, words_are_read};
use crate::lanes::int::{IntLanes, IntRows, Task};
use crate::lanes::widen::LanePart;
use crate::layout::operands::GROUP;
use crate::quant::{BlockScales, CodeLayout, SPAN};
use base::AlignedVec;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Sixteen f32 scales.
const LINE: usize = 4 * GROUP;
/// Codes of a block.
const CODES: usize = 8 * 4 * GROUP;
/// No power of two that codes are around.
pub(super) const NONE: u32 = u32::MAX;

/// Codes after unpacking, raised, of which the largest magnitude is at most `MAX`. They are signed,
/// or around 2 to the power `ZERO` if that is not [`NONE`].
pub(super) struct Bytes<const SIGNED: bool, const ZERO: u32, const MAX: u32>;

impl<const SIGNED: bool, const ZERO: u32, const MAX: u32> Planes for Bytes<SIGNED, ZERO, MAX> {
    const WORDS: usize = 8;
    const MAX_CODE: u32 = MAX;
    const SIGNED: bool = SIGNED;
    const BYTES: bool = true;
    const OFFSET: Option<u32> = if ZERO == NONE { None } else { Some(ZERO) };

    fn words(quads: [u32; 8]) -> [u32; 8] {
        quads
    }

    /// Their scales are divided by it.
    #[inline(always)]
    fn raise<I: IntRows>() -> u32 {
        0
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        unsafe { I::codes_at(words.add(J * 4 * GROUP)) }
    }
}

/// Scales after unpacking.
pub(super) struct Floats<const HALVES: bool, const MINS: bool, const SHORT: bool>;

/// Bytes of the scales of a span, after which its minima lie; `parts` are the scales of a block.
#[inline(always)]
const fn scales_bytes(parts: usize) -> usize {
    SPAN * parts * LINE
}

/// Bytes of the scales of a span and of its minima, where there are any.
#[inline(always)]
const fn all_scales_bytes(halves: bool, mins: bool) -> usize {
    scales_bytes(parts(halves)) * if mins { 2 } else { 1 }
}

/// Scales of a block.
#[inline(always)]
const fn parts(halves: bool) -> usize {
    if halves { 2 } else { 1 }
}

/// Offset of the scales of a block, or of a part of it, in those of a span, and of its minima in
/// the minima.
#[inline(always)]
fn offset(parts: usize, block: usize, half: usize) -> usize {
    (block * parts + half) * LINE
}

impl<const HALVES: bool, const MINS: bool, const SHORT: bool> Scales
    for Floats<HALVES, MINS, SHORT>
{
    const HALVES: bool = HALVES;
    const MINS: bool = MINS;
    const BYTES: usize = all_scales_bytes(HALVES, MINS);
    const SHORT: bool = SHORT;

    fn store(_from: &BlockScales, _block: usize, _row: usize, _span: &mut [u8]) {
        unreachable!("files are not packed to this");
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            let scales = span.add(offset(parts(HALVES), at.block, at.half));
            I::Float::load_at(scales.add(4 * at.row).cast())
        }
    }

    #[inline(always)]
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { Self::scale::<I>(span.add(scales_bytes(parts(HALVES))), at) }
    }
}

/// What remains of a code layout after unpacking.
#[derive(Clone, Copy)]
pub(super) struct UnpackedForm {
    /// Codes are signed.
    pub signed: bool,
    /// The power of two that they are around, or [`NONE`].
    pub zero: u32,
    /// A power of two that they do not exceed.
    pub max: u32,
    /// [`Scales::HALVES`], [`Scales::MINS`] and [`Scales::SHORT`].
    pub scales: [bool; 3],
    /// There is nothing to unpack but scales.
    pub bytes: bool,
    /// To unpack codes, or to scale their sums, costs more than most products.
    pub costly: bool,
}

/// The form of a code layout.
pub(super) fn form(layout: CodeLayout) -> UnpackedForm {
    with_code_layout!(layout, P, S => UnpackedForm {
        signed: P::SIGNED,
        zero: P::OFFSET.unwrap_or(NONE),
        max: P::MAX_CODE.next_power_of_two().clamp(16, 128),
        scales: [S::HALVES, S::MINS, S::SHORT],
        bytes: P::BYTES,
        costly: P::COSTLY || S::HALVES,
    })
}

/// Runs `$body` with the unpacked codes and scales of a form named `$p` and `$s`.
macro_rules! with_unpacked {
    ($form:expr, $p:ident, $s:ident => $body:expr) => {{
        use $crate::layout::int8::unpacked::{Bytes, Floats, NONE};
        macro_rules! run {
            ($signed:expr, $zero:expr, $max:expr, $halves:expr, $mins:expr, $short:expr) => {{
                type $p = Bytes<{ $signed }, { $zero }, { $max }>;
                type $s = Floats<{ $halves }, { $mins }, { $short }>;
                $body
            }};
        }
        let form = $form;
        match (form.signed, form.zero, form.max, form.scales) {
            (true, NONE, 16, [false, false, false]) => run!(true, NONE, 16, false, false, false),
            (true, NONE, 16, [true, false, false]) => run!(true, NONE, 16, true, false, false),
            (true, NONE, 16, [true, false, true]) => run!(true, NONE, 16, true, false, true),
            (true, NONE, 128, [false, false, true]) => run!(true, NONE, 128, false, false, true),
            (true, NONE, 128, [false, true, false]) => run!(true, NONE, 128, false, true, false),
            (false, NONE, 16, [false, true, false]) => run!(false, NONE, 16, false, true, false),
            (false, NONE, 16, [false, true, true]) => run!(false, NONE, 16, false, true, true),
            (false, NONE, 16, [true, true, true]) => run!(false, NONE, 16, true, true, true),
            (false, NONE, 32, [false, true, true]) => run!(false, NONE, 32, false, true, true),
            (false, 0, 16, [false, false, true]) => run!(false, 0, 16, false, false, true),
            (false, 2, 16, [true, false, true]) => run!(false, 2, 16, true, false, true),
            (false, 3, 16, [false, false, true]) => run!(false, 3, 16, false, false, true),
            (false, 4, 32, [false, false, true]) => run!(false, 4, 32, false, false, true),
            (false, 4, 32, [true, false, true]) => run!(false, 4, 32, true, false, true),
            (false, 5, 64, [true, false, true]) => run!(false, 5, 64, true, false, true),
            (false, 6, 128, [false, false, true]) => run!(false, 6, 128, false, false, true),
            (false, 6, 128, [true, false, true]) => run!(false, 6, 128, true, false, true),
            _ => unreachable!("every code layout has a form"),
        }
    }};
}
pub(super) use with_unpacked;

thread_local! {
    /// Memory of each thread for the groups that pass over panels.
    pub(super) static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch(None)) };
}

/// Memory that is allocated by the first product, and grows as weights need it.
pub(super) struct Scratch(Option<(AlignedVec<u8>, AlignedVec<f32>)>);

impl Scratch {
    /// Memory of at least `bytes` bytes for weights, and for `SUMS` sums.
    pub fn fit<const SUMS: usize>(&mut self, bytes: usize) -> (&mut [u8], &mut [[f32; GROUP]]) {
        let (weights, sums) = self.0.get_or_insert_default();
        if weights.len() < bytes {
            *weights = AlignedVec::zeroed(bytes);
        }
        if sums.len() < SUMS * GROUP {
            *sums = AlignedVec::zeroed(SUMS * GROUP);
        }
        (weights, sums.as_chunks_mut().0)
    }
}

/// How the blocks of a code layout are unpacked.
#[derive(Clone, Copy)]
pub(super) struct Unpacking {
    unpack: unsafe fn(*const u8, usize, &mut [u8]),
    pub packed: BlockBytes,
    pub unpacked: BlockBytes,
}

impl Unpacking {
    #[inline(always)]
    pub fn of<I: IntLanes>(layout: CodeLayout) -> Self {
        with_code_layout!(layout, P, S => Self {
            unpack: unpack::<I, P, S>,
            packed: BlockBytes::of::<P, S>(),
            unpacked: BlockBytes { scales: all_scales_bytes(S::HALVES, S::MINS), codes: CODES },
        })
    }

    /// Unpacks `blocks` blocks of a group, which are at `from`.
    ///
    /// # Safety
    /// These blocks, with their scales, must be readable.
    pub unsafe fn unpack(&self, from: *const u8, blocks: usize, to: &mut [u8]) {
        assert!(to.len() >= self.unpacked.bytes(blocks), "space for the blocks");
        // SAFETY: the caller's promise; the space was checked.
        unsafe { (self.unpack)(from, blocks, to) };
    }
}

/// # Safety
/// As [`Unpacking::unpack`], and `to` has the space.
unsafe fn unpack<I: IntLanes, P: Planes, S: Scales>(from: *const u8, blocks: usize, to: &mut [u8]) {
    I::enter(Expand::<P, S> { from, to: to.as_mut_ptr(), blocks, layout: PhantomData });
}

struct Expand<P, S> {
    from: *const u8,
    to: *mut u8,
    blocks: usize,
    layout: PhantomData<(P, S)>,
}

impl<P: Planes, S: Scales> Task for Expand<P, S> {
    type Output = ();

    #[inline(always)]
    fn run<I: IntLanes>(self) {
        let Self { mut from, mut to, blocks, .. } = self;
        for first in (0..blocks).step_by(SPAN) {
            let count = SPAN.min(blocks - first);
            // SAFETY: `unpack` has the promise for the blocks and the space.
            unsafe {
                to = scales::<I, P, S>(from, to, count);
                from = from.add(S::BYTES);
                for _ in 0..count {
                    codes::<I, P>(from, to);
                    from = from.add(code_bytes::<P>());
                    to = to.add(CODES);
                }
            }
        }
    }
}

/// The scales of `blocks` blocks of a span, divided as codes are raised; returns where the codes
/// belong.
///
/// # Safety
/// As [`Scales::scale`] of `from`; those of a span must be writable at `to`.
#[inline(always)]
unsafe fn scales<I: IntLanes, P: Planes, S: Scales>(
    from: *const u8,
    to: *mut u8,
    blocks: usize,
) -> *mut u8 {
    let parts = parts(S::HALVES);
    for block in 0..blocks {
        for half in 0..parts {
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.add(offset(parts, block, half));
                let at = At { block, half, row: 0 };
                lowered::<I, P>(S::scale::<I>(from, at)).store_at(to.cast());
                if S::MINS {
                    S::min::<I>(from, at).store_at(to.add(scales_bytes(parts)).cast());
                }
            }
        }
    }
    to.wrapping_add(all_scales_bytes(S::HALVES, S::MINS))
}

/// Scales of what codes are, given those of what they are worth.
#[inline(always)]
pub(super) fn lowered<I: IntRows, P: Planes>(scales: I::Float) -> I::Float {
    match P::raise::<I>() {
        0 => scales,
        raise => scales.mul(I::Float::splat(1.0 / (1 << raise) as f32)),
    }
}

/// The codes of a block.
///
/// # Safety
/// As [`Planes::held`]; `CODES` bytes must be writable at `to`.
#[inline(always)]
unsafe fn codes<I: IntLanes, P: Planes>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let held = P::held::<I>(from, 0);
        let quads = [
            P::codes::<I, 0>(held),
            P::codes::<I, 1>(held),
            P::codes::<I, 2>(held),
            P::codes::<I, 3>(held),
            P::codes::<I, 4>(held),
            P::codes::<I, 5>(held),
            P::codes::<I, 6>(held),
            P::codes::<I, 7>(held),
        ];
        for (j, codes) in quads.into_iter().enumerate() {
            I::store_codes(codes, to.add(j * 4 * GROUP));
        }
    }
}
