//! How cached keys and values are stored: a `Format` for each type.
//!
//! Layers of which a row is both key and value, and indexes of rows, have plain rows
//! ([`PlainRows`]): the values of a position one after another. All other layers have the
//! transposed layout ([`KvLayout`]): a block holds `block` positions of one layer: for each KV head
//! its keys, then its values, so that a block is one run of bytes and so is a head of it. Keys are
//! transposed (sixteen positions are sixteen lanes, and no score needs a horizontal sum): `[units
//! of the head][block]`. Values lie by position: `[units of positions][stride]`. Scales, where a
//! type has them, follow the units: `[groups][block]` for keys, `[block][groups]` for values. The
//! layout is a function of the type and the sizes only, never of the instruction set.
//!
//! Invariant: the bytes of a position depend on its own key and value alone, and every type
//! represents exact f32 values, which kernels compute with.

mod float;
mod layer;
mod plain;
mod q8_0;
mod rounding;

pub use layer::{LayerCache, RowLayout, Rows, STATE_TILE, State, group_windows};
pub use plain::{PlainRows, RowList};
pub(crate) use rounding::scale_of;
pub use rounding::{Rounding, round};

use crate::isa::Isa;
use crate::lanes::{LANES, Lanes, isa_dispatch};
use std::ops::Range;

/// Largest key of a head: a latent row of 512 and the 64 rotated values after it, and some.
pub const MAX_HEAD_DIM: usize = 640;
/// Positions of a span, which blocks divide; see [`attention`](crate::attention).
pub const SPAN: usize = 512;
/// Values that share a scale in quantised types.
pub(crate) const GROUP: usize = 32;
/// Heads of blocks begin at whole cache lines.
const ALIGN: usize = 64;

/// Storage type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value, the range of f32.
    Bf16,
    /// 2 bytes a value, more digits and less range.
    F16,
    /// 8 bits a value, and a scale for every 32; in transposed layouts only.
    Q8_0,
    /// The codes and scales of values that are rounded before they are cached, 8 or 4 bits a
    /// value; in plain rows only.
    Fp8,
}

/// What a type is.
struct Format {
    name: &'static str,
    /// How the type lies in the transposed layout, if it can.
    transposed: Option<Transposed>,
}

/// A type in the transposed layout.
struct Transposed {
    /// Bytes of a unit: what kernels multiply at once in a lane.
    unit: usize,
    /// Values in a unit: neighbours of the head in a key, of two positions in values.
    width: usize,
    /// Whether there is a scale of two bytes for every [`GROUP`] values of a head.
    scaled: bool,
    /// Stores the `dim` values of one head's key, or value, at a slot of the head's bytes.
    store_key: fn(&KvLayout, &mut [u8], usize, &[f32]),
    store_value: fn(&KvLayout, &mut [u8], usize, &[f32]),
}

impl KvType {
    /// All types, largest first.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::F16, Self::Q8_0, Self::Fp8];

    /// The types of [`KvLayout`], largest first.
    pub const TRANSPOSED: [Self; 4] = [Self::F32, Self::Bf16, Self::F16, Self::Q8_0];

    fn format(self) -> &'static Format {
        match self {
            Self::F32 => &float::F32_FORMAT,
            Self::Bf16 => &float::BF16_FORMAT,
            Self::F16 => &float::F16_FORMAT,
            Self::Q8_0 => &q8_0::FORMAT,
            Self::Fp8 => &Format { name: "fp8", transposed: None },
        }
    }

    /// Whether the type has a transposed layout.
    pub fn is_transposed(self) -> bool {
        self.format().transposed.is_some()
    }

    /// Name as users write it.
    pub fn name(self) -> &'static str {
        self.format().name
    }
}

impl std::str::FromStr for KvType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|ty| ty.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("KV cache type must be one of {names}, not {name:?}")
        })
    }
}

/// Sizes of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// How values are stored; one of [`KvType::TRANSPOSED`].
    pub ty: KvType,
    /// Positions in a block; a multiple of 16 that divides [`SPAN`].
    pub block: usize,
    /// KV heads.
    pub heads: usize,
    /// Values of a key, at most [`MAX_HEAD_DIM`].
    pub dim: usize,
    /// Values are the leading inputs of each key, and only keys are stored (latent attention);
    /// `None` where every position has values of its own, as many as a key's.
    pub latent: Option<usize>,
}

impl KvLayout {
    /// The type in this layout.
    fn form(&self) -> &'static Transposed {
        let name = self.ty.name();
        let Some(form) = &self.ty.format().transposed else { panic!("{name} is of plain rows") };
        form
    }

    /// Bytes of one block: what one layer takes for `block` positions.
    pub fn block_bytes(&self) -> usize {
        self.heads * self.head_bytes()
    }

    /// Bytes of one head in a block: keys, and values where they are not part of the keys.
    pub fn head_bytes(&self) -> usize {
        self.value_start() + if self.latent.is_some() { 0 } else { self.value_bytes() }
    }

    /// Number of values of a head at a position.
    pub fn value_dim(&self) -> usize {
        self.latent.unwrap_or(self.dim)
    }

    /// Bytes of the values of one head of a block, with their scales.
    pub(crate) fn value_bytes(&self) -> usize {
        let scales = if self.form().scaled { 2 * self.value_groups() * self.block } else { 0 };
        (self.value_scales() + scales).next_multiple_of(ALIGN)
    }

    /// Offset of a head's values after its keys.
    pub(crate) fn value_start(&self) -> usize {
        let scales = if self.form().scaled { 2 * self.groups() * self.block } else { 0 };
        (self.key_scales() + scales).next_multiple_of(ALIGN)
    }

    /// Offset of the scales of a head's keys, `[groups][block]`.
    pub(crate) fn key_scales(&self) -> usize {
        let Transposed { unit, width, .. } = self.form();
        unit * self.dim.div_ceil(*width) * self.block
    }

    /// Offset of the scales of a head's values, `[block][groups]`.
    pub(crate) fn value_scales(&self) -> usize {
        let Transposed { unit, width, .. } = self.form();
        unit * self.block / width * self.value_stride()
    }

    /// Units between the rows of two positions (or pairs of positions).
    pub(crate) fn value_stride(&self) -> usize {
        self.value_dim().next_multiple_of(GROUP)
    }

    /// Groups that share a scale, of a key.
    pub(crate) fn groups(&self) -> usize {
        self.dim.div_ceil(GROUP)
    }

    /// Groups that share a scale, of a position's values.
    pub(crate) fn value_groups(&self) -> usize {
        self.value_dim().div_ceil(GROUP)
    }

    /// Stores the key and value (`dim` values each; none where they are part of the key) of one
    /// position in `head`, the [`head_bytes`](Self::head_bytes) of one head in one block.
    /// Positions are stored in ascending order.
    pub fn store(&self, head: &mut [u8], slot: usize, key: &[f32], value: &[f32]) {
        assert!(slot < self.block && head.len() == self.head_bytes(), "a slot of the head");
        let own = if self.latent.is_some() { 0 } else { self.dim };
        assert!(key.len() == self.dim && value.len() == own, "a key and a value");
        let (keys, values) = head.split_at_mut(self.value_start());
        (self.form().store_key)(self, keys, slot, key);
        if own > 0 {
            (self.form().store_value)(self, values, slot, value);
        }
    }

    /// Stores the keys and values of consecutive positions, in `slots` of `head`. Those of a
    /// position begin `apart` values after those of the position before. The bits are those of
    /// [`store`](Self::store).
    pub fn store_rows(
        &self,
        isa: Isa,
        head: &mut [u8],
        slots: Range<usize>,
        (keys, values): (&[f32], &[f32]),
        apart: usize,
    ) {
        assert!(slots.end <= self.block && head.len() == self.head_bytes(), "slots of the head");
        let (dim, own) = (self.dim, if self.latent.is_some() { 0 } else { self.dim });
        let mut slot = slots.start;
        while slot < slots.end {
            let at = (slot - slots.start) * apart;
            let together = slot.is_multiple_of(LANES) && slots.end - slot >= LANES;
            if together && self.ty == KvType::Bf16 {
                let values = if own > 0 { &values[at..] } else { &[] };
                float::store_bf16(isa, self, head, slot, &keys[at..], values, apart);
                slot += LANES;
            } else {
                let value = if own > 0 { &values[at..][..own] } else { &[] };
                self.store(head, slot, &keys[at..][..dim], value);
                slot += 1;
            }
        }
    }

    /// Asks for the memory that storing the position `slot` of `head` writes, a cache line for each
    /// unit of the key. A hint only.
    pub fn prefetch(&self, isa: Isa, head: &[u8], slot: usize) {
        assert!(slot < self.block && head.len() == self.head_bytes(), "a slot of the head");
        prefetch(isa, self, head, slot);
    }

    /// Panics if kernels could not read this layout.
    pub(crate) fn check(&self) {
        assert!(self.ty.is_transposed(), "{} is of plain rows", self.ty.name());
        assert!(self.dim > 0 && self.dim <= MAX_HEAD_DIM, "head size {}", self.dim);
        assert!((1..=self.dim).contains(&self.value_dim()), "values within the key");
        let fits = self.block.is_multiple_of(LANES) && SPAN.is_multiple_of(self.block);
        assert!(self.block > 0 && fits, "positions in a block: {}", self.block);
    }
}

isa_dispatch! {
    fn prefetch(layout: &KvLayout, head: &[u8], slot: usize) = prefetch_body
}

#[inline(always)]
fn prefetch_body<L: Lanes>(layout: &KvLayout, head: &[u8], slot: usize) {
    let Transposed { unit, width, .. } = *layout.form();
    let (keys, values) = head.split_at(layout.value_start());
    for column in keys[..layout.key_scales()].chunks_exact(layout.block * unit) {
        L::prefetch(&raw const column[slot * unit]);
    }
    let row = layout.value_stride() * unit;
    if let Some(row) = values.chunks_exact(row).nth(slot / width) {
        for line in row.chunks(ALIGN) {
            L::prefetch(line.as_ptr());
        }
    }
}

/// A scale as the 16 bits of a BF16 value no smaller, so that nothing has to be clamped. Its
/// products with small integers are exact in f32.
fn scale_bits(scale: f32) -> u16 {
    let bits = scale.to_bits();
    // Infinity and NaN stay what they are.
    if scale.is_finite() { (bits.saturating_add(0xffff) >> 16) as u16 } else { 0x7fc0 }
}

/// The value of [`scale_bits`].
fn scale_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The largest magnitude, NaN if there is one.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    // Magnitudes are ordered as their bits, NaN after all others.
    let bits = values.iter().map(|value| value.to_bits() & 0x7fff_ffff);
    f32::from_bits(bits.fold(0, u32::max))
}

#[cfg(test)]
mod tests;
