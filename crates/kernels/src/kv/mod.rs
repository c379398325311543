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
mod layout;
mod plain;
mod q8_0;
mod rounding;
mod scale;

pub use layer::{LayerCache, RowLayout, Rows, STATE_TILE, State, group_windows};
pub(crate) use layout::GROUP;
use layout::{ALIGN, Format, Transposed};
pub use layout::{KvLayout, KvType, MAX_HEAD_DIM, SPAN};
pub use plain::{PlainRows, RowList};
pub(crate) use rounding::scale_of;
pub use rounding::{Rounding, round};

use crate::isa::Isa;
use crate::lanes::{LANES, Lanes, isa_dispatch};
use std::ops::Range;

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

#[cfg(test)]
mod tests;
