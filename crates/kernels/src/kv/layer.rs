//! What layers keep for each sequence: rows in blocks, and states in slots.
//!
//! - **Rows** are functions of the tokens up to a position. They lie in blocks, so that they can be
//!   shared, copied in part, and overwritten.
//! - **States** are true recurrences, which can neither be cut nor rewound.
//!
//! Rows of equal window, over all layers, form a *group*, which has blocks of its own; see
//! docs/decisions/0017-rows-with-windows-and-states.md.

use crate::kv::layout::{KvLayout, KvType};
use crate::kv::plain::PlainRows;
use crate::kv::rounding::Rounding;
use std::ops::Range;

/// What a layer keeps for a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerCache {
    /// Rows, in the order in which operations name them.
    pub rows: Vec<Rows>,
    /// A state, where the layer is recurrent.
    pub state: Option<State>,
}

/// Rows of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// KV heads.
    pub heads: usize,
    /// Values of a key, or of a plain row.
    pub dim: usize,
    /// How rows lie in a block.
    pub layout: RowLayout,
    /// Positions to a row. Row `w` is completed at position `(w + 1) * every - 1` and lies in the
    /// block of that position.
    pub every: usize,
    /// Number of positions for which a row is looked at, its own included; `None` for all.
    pub window: Option<usize>,
    /// Storage type, if not that of the cache.
    pub ty: Option<KvType>,
}

/// How rows lie in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLayout {
    /// Keys transposed for attention, and values, of each head.
    Heads {
        /// Size of a value that is the start of its key, as in latent attention, where only keys
        /// are stored; `None` where values are stored and as long as keys.
        latent: Option<usize>,
    },
    /// One row after another, rounded as said.
    Plain(Rounding),
}

/// The state of one layer: a matrix `[keys, values]` of f32 for each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Value heads.
    pub heads: usize,
    /// Heads of keys, which value heads share.
    pub key_heads: usize,
    /// Values of a key.
    pub keys: usize,
    /// Values of a value.
    pub values: usize,
    /// Whether each key of a head has a decay of its own.
    pub channel_decay: bool,
}

impl LayerCache {
    /// A layer that attends to all positions of a window, or to all.
    pub fn heads(heads: usize, dim: usize, latent: Option<usize>, window: Option<usize>) -> Self {
        let layout = RowLayout::Heads { latent };
        let rows = vec![Rows { heads, dim, layout, every: 1, window, ty: None }];
        Self { rows, state: None }
    }

    /// Adds what another operation of the layer keeps.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.state = self.state.or(other.state);
    }

    /// Bytes of a block of `block` positions in every group.
    pub fn bytes(&self, block: usize, ty: KvType) -> usize {
        self.rows.iter().map(|rows| rows.block_bytes(block, ty)).sum()
    }
}

impl Rows {
    /// Plain rows of `dim` values for each position, f32 unless a type is set.
    pub fn plain(dim: usize, window: Option<usize>) -> Self {
        let layout = RowLayout::Plain(Rounding::None);
        Self { heads: 1, dim, layout, every: 1, window, ty: None }
    }

    /// Bytes of a block of `block` positions, rounded up so that rows of the next layer begin at a
    /// cache line.
    pub fn block_bytes(&self, block: usize, ty: KvType) -> usize {
        match self.layout {
            RowLayout::Heads { .. } => self.kv_layout(block, ty).block_bytes(),
            RowLayout::Plain(_) => {
                (self.places(block) * self.plain_rows(ty).row_bytes()).next_multiple_of(LINE)
            }
        }
    }

    /// Values of a value.
    pub fn value_dim(&self) -> usize {
        match self.layout {
            RowLayout::Heads { latent: Some(values) } => values,
            _ => self.dim,
        }
    }

    /// Places for rows in a block of `block` positions.
    pub fn places(&self, block: usize) -> usize {
        block.div_ceil(self.every)
    }

    /// Number of rows that are complete at `position`.
    pub fn complete(&self, position: usize) -> usize {
        (position + 1) / self.every
    }

    /// Numbers of the rows that a query at `position` may attend to, where positions before `first`
    /// have no rows: those complete rows whose positions all have one, or otherwise the last.
    pub fn present(&self, position: usize, first: usize) -> Range<usize> {
        let complete = self.complete(position);
        first.div_ceil(self.every).min(complete.saturating_sub(1))..complete
    }

    /// Block index and place of row `number`.
    pub fn place(&self, number: usize, block: usize) -> (usize, usize) {
        let index = ((number + 1) * self.every - 1) / block;
        (index, number - index * block / self.every)
    }

    /// How rows of heads are stored in a cache of type `ty`.
    ///
    /// # Panics
    /// If these are plain rows.
    pub fn kv_layout(&self, block: usize, ty: KvType) -> KvLayout {
        let RowLayout::Heads { latent } = self.layout else { panic!("rows of heads") };
        KvLayout { ty: self.ty.unwrap_or(ty), block, heads: self.heads, dim: self.dim, latent }
    }

    /// How plain rows are stored in a cache of type `ty`.
    ///
    /// # Panics
    /// If these are rows of heads.
    pub fn plain_rows(&self, ty: KvType) -> PlainRows {
        let RowLayout::Plain(rounding) = self.layout else { panic!("plain rows") };
        // Types for heads only, and types for rounded rows only, have no plain form.
        let ty = match self.ty.unwrap_or(ty) {
            KvType::Q8_0 => KvType::Bf16,
            KvType::Fp8 if rounding == Rounding::None => KvType::Bf16,
            ty => ty,
        };
        PlainRows { ty, dim: self.dim, rounding }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Value columns of a tile of a state.
pub const STATE_TILE: usize = 16;

impl State {
    /// Bytes of the matrices, whose columns are padded to whole tiles.
    pub fn bytes(&self) -> usize {
        4 * self.tiles() * self.tile()
    }

    /// Bytes of the inputs of `guesses` rows that wait next to the matrices.
    pub fn waiting_bytes(&self, guesses: usize) -> usize {
        4 * guesses * self.waiting()
    }

    /// Tiles of all heads.
    pub fn tiles(&self) -> usize {
        self.heads * self.values.div_ceil(STATE_TILE)
    }

    /// Values of a tile.
    pub fn tile(&self) -> usize {
        self.keys * STATE_TILE
    }

    /// Values of a row that waits: keys, values, decay and beta of all heads.
    pub fn waiting(&self) -> usize {
        self.key_heads * self.keys + self.heads * (self.values + self.decays() + 1)
    }

    /// Decays of a head.
    pub fn decays(&self) -> usize {
        if self.channel_decay { self.keys } else { 1 }
    }
}

/// The windows of the groups of `layers`, the trunk first: the rows without a window, or with the
/// widest. All ranks derive them from all layers of the model.
pub fn group_windows<'a>(layers: impl IntoIterator<Item = &'a LayerCache>) -> Vec<Option<usize>> {
    let mut windows: Vec<Option<usize>> =
        layers.into_iter().flat_map(|layer| layer.rows.iter().map(|rows| rows.window)).collect();
    windows.sort_unstable_by_key(|window| std::cmp::Reverse(window.unwrap_or(usize::MAX)));
    windows.dedup();
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_in_the_block_in_which_they_are_completed() {
        for (every, block) in [(1, 32), (4, 32), (128, 32), (16, 32), (3, 32), (5, 16)] {
            let rows = Rows { every, ..Rows::plain(8, None) };
            let mut last = (0, None);
            for number in 0..2000 {
                let (index, place) = rows.place(number, block);
                assert_eq!(index, ((number + 1) * every - 1) / block);
                assert!(place < rows.places(block), "row {number} of {every}");
                let wanted = if last.0 == index { last.1.map_or(0, |at: usize| at + 1) } else { 0 };
                assert_eq!(place, wanted, "row {number} of {every}");
                last = (index, Some(place));
            }
        }
    }

    #[test]
    fn the_widest_group_leads() {
        let layer = |window| LayerCache::heads(1, 8, None, window);
        let layers = [Some(8), None, Some(128), Some(8)].map(layer);
        assert_eq!(group_windows(&layers), [None, Some(128), Some(8)]);
        assert_eq!(group_windows(&layers[..1]), [Some(8)]);
    }
}
