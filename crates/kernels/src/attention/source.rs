//! Loads of the units of each storage type into registers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::mac::Dot;
use super::mac::{Mac, Single, Tiles, Wide};
use crate::kv::{GROUP, MAX_HEAD_DIM};
use std::marker::PhantomData;

/// Loads of a storage type on one instruction set.
pub(super) trait KvSource {
    type Mac: Mac;
    /// Scale by which the units of a group are multiplied when they are loaded.
    type Scale: Copy;
    /// Bytes of a unit.
    const BYTES: usize;
    /// Units of a key that share a scale.
    const STEPS: usize = MAX_HEAD_DIM;
    /// Whether a load converts the values.
    const CONVERTS: bool = false;

    /// The scales of 16 keys, the first of them at index `at`.
    ///
    /// # Safety
    /// `at` and 15 more must lie inside `scales`, if the type has any.
    unsafe fn key_scales(scales: *const u8, at: usize) -> Self::Scale;

    /// The scale of values at index `at`, in all lanes.
    ///
    /// # Safety
    /// `at` must lie inside `scales`, if the type has any.
    unsafe fn value_scale(scales: *const u8, at: usize) -> Self::Scale;

    /// Sixteen units.
    ///
    /// # Safety
    /// The units must be readable; no alignment is needed.
    unsafe fn load(at: *const u8, scale: Self::Scale) -> <Self::Mac as Mac>::Units;
}

/// The scale of types without scales.
macro_rules! unscaled {
    () => {
        type Scale = ();

        #[inline(always)]
        unsafe fn key_scales(_: *const u8, _: usize) {}

        #[inline(always)]
        unsafe fn value_scale(_: *const u8, _: usize) {}
    };
}

pub(super) struct F32<L>(PhantomData<L>);

impl<L: Tiles> KvSource for F32<L> {
    type Mac = Single<L>;
    const BYTES: usize = 4;
    unscaled!();

    #[inline(always)]
    unsafe fn load(at: *const u8, (): ()) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_at(at.cast()) }
    }
}

/// BF16 widened to f32.
pub(super) struct Bf16<L>(PhantomData<L>);

impl<L: Tiles> KvSource for Bf16<L> {
    type Mac = Wide<L>;
    const BYTES: usize = 4;
    const CONVERTS: bool = true;
    unscaled!();

    #[inline(always)]
    unsafe fn load(at: *const u8, (): ()) -> (L, L) {
        // SAFETY: the caller's promise.
        unsafe { L::load_bf16_pairs_at(at.cast()) }
    }
}

/// BF16 multiplied without widening.
#[cfg(target_arch = "x86_64")]
pub(super) struct Bf16Dot;

#[cfg(target_arch = "x86_64")]
impl KvSource for Bf16Dot {
    type Mac = Dot;
    const BYTES: usize = 4;
    unscaled!();

    #[inline(always)]
    unsafe fn load(at: *const u8, (): ()) -> std::arch::x86_64::__m512bh {
        use std::arch::x86_64::{__m512bh, __m512i, _mm512_loadu_si512};
        // SAFETY: the caller's promise; both types are 64 bytes of plain bits.
        unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(at.cast())) }
    }
}

pub(super) struct F16<L>(PhantomData<L>);

impl<L: Tiles> KvSource for F16<L> {
    type Mac = Single<L>;
    const BYTES: usize = 2;
    const CONVERTS: bool = true;
    unscaled!();

    #[inline(always)]
    unsafe fn load(at: *const u8, (): ()) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_f16_at(at.cast()) }
    }
}

pub(super) struct Q8_0<L>(PhantomData<L>);

impl<L: Tiles> KvSource for Q8_0<L> {
    type Mac = Single<L>;
    type Scale = L;
    const BYTES: usize = 1;
    const STEPS: usize = GROUP;
    const CONVERTS: bool = true;

    #[inline(always)]
    unsafe fn key_scales(scales: *const u8, at: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_bf16_at(scales.cast::<u16>().add(at)) }
    }

    #[inline(always)]
    unsafe fn value_scale(scales: *const u8, at: usize) -> L {
        // SAFETY: the caller's promise.
        let bits = unsafe { scales.cast::<u16>().add(at).read_unaligned() };
        L::splat(f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    unsafe fn load(at: *const u8, scale: L) -> L {
        // SAFETY: the caller's promise.
        unsafe { L::load_i8_at(at.cast()) }.mul(scale)
    }
}
