//! Weights unpacked for many rows: codes as registers hold them, scales as f32.
//!
//! All register tiles of many rows read the same weights, so a run of them is unpacked once, into
//! memory that the nearest cache holds. The result is one more code layout: the same kernels
//! compute with it and produce the same bits.
#![allow(unsafe_code)]

use super::packed::code_bytes;
use super::parts::{At, Planes, Scales, words_are_read};
use crate::lanes::int::{IntLanes, IntRows, Task};
use crate::lanes::widen::LanePart;
use crate::layout::operands::GROUP;
use crate::quant::{BlockScales, SPAN};
use base::AlignedVec;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Sixteen f32 scales.
const LINE: usize = 4 * GROUP;
/// Planes or scales after unpacking.
pub(super) struct Unpacked<T>(PhantomData<T>);

impl<P: Planes> Planes for Unpacked<P> {
    const WORDS: usize = 8;
    const MAX_CODE: u32 = P::MAX_CODE;
    const SIGNED: bool = P::SIGNED;
    const OFFSET: Option<u32> = P::OFFSET;

    fn words(quads: [u32; 8]) -> [u32; 8] {
        quads
    }

    #[inline(always)]
    fn raise<I: IntRows>() -> u32 {
        P::raise::<I>()
    }

    words_are_read!();

    #[inline(always)]
    unsafe fn codes<I: IntRows, const J: usize>(words: *const u8) -> I::Codes {
        // SAFETY: the caller's promise.
        unsafe { I::codes_at(words.add(J * 4 * GROUP)) }
    }
}

impl<S: Scales> Unpacked<S> {
    const PARTS: usize = if S::HALVES { 2 } else { 1 };
    const MIN: usize = SPAN * Self::PARTS * LINE;

    #[inline(always)]
    fn at(block: usize, half: usize) -> usize {
        (block * Self::PARTS + half) * LINE
    }
}

impl<S: Scales> Scales for Unpacked<S> {
    const HALVES: bool = S::HALVES;
    const MINS: bool = S::MINS;
    const BYTES: usize = Self::MIN * if S::MINS { 2 } else { 1 };
    const SHORT: bool = S::SHORT;

    fn store(_from: &BlockScales, _block: usize, _row: usize, _span: &mut [u8]) {
        unreachable!("files are not packed to this");
    }

    #[inline(always)]
    unsafe fn scale<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe { I::Float::load_at(span.add(Self::at(at.block, at.half) + 4 * at.row).cast()) }
    }

    #[inline(always)]
    unsafe fn min<I: IntRows>(span: *const u8, at: At) -> I::Float {
        // SAFETY: the caller's promise.
        unsafe {
            I::Float::load_at(span.add(Self::MIN + Self::at(at.block, at.half) + 4 * at.row).cast())
        }
    }
}

/// Bytes of `blocks` blocks of a group.
#[inline(always)]
pub(super) fn unpacked_bytes<P: Planes, S: Scales>(blocks: usize) -> usize {
    blocks.div_ceil(SPAN) * <Unpacked<S> as Scales>::BYTES + blocks * code_bytes::<Unpacked<P>>()
}

thread_local! {
    /// Memory of each thread for unpacked weights.
    pub(super) static UNPACKED: RefCell<UnpackedGroups> = const { RefCell::new(UnpackedGroups(None)) };
}

/// Memory that grows as groups need it.
pub(super) struct UnpackedGroups(Option<AlignedVec<u8>>);

impl UnpackedGroups {
    /// Memory of at least `bytes` bytes.
    pub fn fit(&mut self, bytes: usize) -> &mut [u8] {
        let memory = self.0.get_or_insert_default();
        if memory.len() < bytes {
            *memory = AlignedVec::zeroed(bytes);
        }
        memory
    }
}

/// Unpacks `blocks` blocks of a group at `from`.
///
/// # Safety
/// These blocks, with their scales, must be readable.
#[inline(always)]
pub(super) unsafe fn unpack<I: IntLanes, P: Planes, S: Scales>(
    from: *const u8,
    blocks: usize,
    to: &mut [u8],
) {
    assert!(to.len() >= unpacked_bytes::<P, S>(blocks), "space for the group");
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
            // SAFETY: `unpack` has the promise for the blocks and checked the space.
            unsafe {
                scales::<I, S>(from, to, count);
                from = from.add(S::BYTES);
                to = to.add(<Unpacked<S> as Scales>::BYTES);
                for _ in 0..count {
                    codes::<I, P>(from, to);
                    from = from.add(code_bytes::<P>());
                    to = to.add(code_bytes::<Unpacked<P>>());
                }
            }
        }
    }
}

/// The scales of `blocks` blocks of a span.
///
/// # Safety
/// As [`Scales::scale`] of `from`; `Unpacked<S>::BYTES` bytes must be writable at `to`.
#[inline(always)]
unsafe fn scales<I: IntLanes, S: Scales>(from: *const u8, to: *mut u8, blocks: usize) {
    for block in 0..blocks {
        for half in 0..Unpacked::<S>::PARTS {
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.add(Unpacked::<S>::at(block, half));
                let at = At { block, half, row: 0 };
                S::scale::<I>(from, at).store_at(to.cast());
                if S::MINS {
                    S::min::<I>(from, at).store_at(to.add(Unpacked::<S>::MIN).cast());
                }
            }
        }
    }
}

/// The codes of a block.
///
/// # Safety
/// As [`Planes::held`]; 512 bytes must be writable at `to`.
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
