//! Where the units of one head of one block are read: in the cache, or in a copy made of it.

#[cfg(target_arch = "x86_64")]
use super::mac::Dot;
use super::mac::{Mac, Single, Tiles, Wide};
use crate::kv::{self, KvLayout, Unpack};
use std::marker::PhantomData;

/// A storage type as one instruction set reads it. Units of keys are `[units of the head][block]`,
/// units of values `[units of positions][value_stride]`.
pub(super) trait Source {
    type Mac: Mac;

    /// Where the units of the keys of `head` begin: in `head` itself or in `room`.
    fn keys(layout: &KvLayout, head: &[u8], room: &mut [f32], ahead: *const u8) -> *const u32;

    /// As `keys`, for the values of the first `positions` positions.
    fn values(
        layout: &KvLayout,
        head: &[u8],
        positions: usize,
        room: &mut [f32],
        ahead: *const u8,
    ) -> *const u32;

    /// Values that a copy of one block takes.
    fn room(layout: &KvLayout) -> usize;
}

/// Units that lie in the cache as they are multiplied.
pub(super) struct InPlace<M>(PhantomData<M>);

impl<M: Mac> Source for InPlace<M> {
    type Mac = M;

    #[inline(always)]
    fn keys(_: &KvLayout, head: &[u8], _: &mut [f32], _: *const u8) -> *const u32 {
        head.as_ptr().cast()
    }

    #[inline(always)]
    fn values(layout: &KvLayout, head: &[u8], _: usize, _: &mut [f32], _: *const u8) -> *const u32 {
        head[layout.value_start()..].as_ptr().cast()
    }

    fn room(_: &KvLayout) -> usize {
        0
    }
}

/// Values that are copied to f32 first, a block at a time.
pub(super) struct Copied<L, U>(PhantomData<(L, U)>);

impl<L: Tiles, U: Unpack> Source for Copied<L, U> {
    type Mac = Single<L>;

    #[inline(always)]
    fn keys(layout: &KvLayout, head: &[u8], room: &mut [f32], ahead: *const u8) -> *const u32 {
        U::keys::<L>(layout, head, room, ahead);
        room.as_ptr().cast()
    }

    #[inline(always)]
    fn values(
        layout: &KvLayout,
        head: &[u8],
        positions: usize,
        room: &mut [f32],
        ahead: *const u8,
    ) -> *const u32 {
        U::values::<L>(layout, head, positions, room, ahead);
        room.as_ptr().cast()
    }

    fn room(layout: &KvLayout) -> usize {
        layout.block * layout.value_stride()
    }
}

pub(super) type F32<L> = InPlace<Single<L>>;
pub(super) type Bf16<L> = InPlace<Wide<L>>;
pub(super) type F16<L> = Copied<L, kv::F16>;
pub(super) type Q8_0<L> = Copied<L, kv::Q8_0>;
/// BF16 multiplied as such.
#[cfg(target_arch = "x86_64")]
pub(super) type Bf16Dot = InPlace<Dot>;
