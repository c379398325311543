//! Bytes of what a model keeps of its sequences: rows in blocks, by group, and states in slots.

use backend::{KvType, LayerCache, Rows, State, group_windows};
use std::ops::Range;

/// Bytes of a group of rows: the rows of all layers that are looked at for equally many positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBytes {
    /// Number of positions for which a row is looked at; `None` for all that follow.
    pub window: Option<usize>,
    /// Bytes of a block in all layers.
    pub block_bytes: usize,
}

/// Bytes of the cache of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheBytes {
    /// Positions of a block.
    pub block: usize,
    /// The groups of rows. The first is the trunk, which holds all positions of a sequence; the
    /// others hold those within their windows.
    pub groups: Vec<GroupBytes>,
    /// Bytes of a state slot: the states of all layers of one sequence; 0 if the model has none.
    pub slot: usize,
}

/// Bytes of blocks and states in each layer, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayerBytes {
    /// For each group, bytes of a block in each layer.
    pub groups: Vec<Vec<u64>>,
    /// Bytes of a state in each layer.
    pub states: Vec<u64>,
    /// The layers that this rank holds, of all.
    pub own: Range<usize>,
}

impl LayerBytes {
    /// The bytes of `layers`, in groups with these `windows`. `row_bytes` tells the bytes of a
    /// block of rows, `state_bytes` those of a state.
    pub fn of(
        layers: &[LayerCache],
        windows: &[Option<usize>],
        row_bytes: impl Fn(&Rows) -> usize,
        state_bytes: impl Fn(&State) -> usize,
    ) -> Self {
        let rows_of = |layer: &LayerCache, window| {
            let rows = layer.rows.iter().filter(|rows| rows.window == window);
            rows.map(|rows| row_bytes(rows) as u64).sum()
        };
        let group = |&window| layers.iter().map(|layer| rows_of(layer, window)).collect();
        let state = |layer: &LayerCache| layer.state.map_or(0, |state| state_bytes(&state) as u64);
        Self {
            groups: windows.iter().map(group).collect(),
            states: layers.iter().map(state).collect(),
            own: 0..layers.len(),
        }
    }

    /// The same, of a rank that holds the layers `own` of these.
    pub fn held(self, own: Range<usize>) -> Self {
        Self { own, ..self }
    }

    /// The same as `own` of `count` layers, of whose bytes the others are not known here.
    pub fn among(self, own: Range<usize>, count: usize) -> Self {
        let padded = |bytes: Vec<u64>| {
            let mut all = vec![0; count];
            all[own.clone()].copy_from_slice(&bytes);
            all
        };
        let Self { groups, states, .. } = self;
        Self {
            groups: groups.into_iter().map(padded).collect(),
            states: padded(states),
            own: own.clone(),
        }
    }
}

impl CacheBytes {
    /// The bytes of a cache of `layers`, all layers of a model, whose rows have the type `ty`, in
    /// host memory.
    pub fn of(layers: &[LayerCache], block: usize, ty: KvType) -> Self {
        let rows = |rows: &Rows| rows.block_bytes(block, ty);
        Self::of_groups(layers, &group_windows(layers), block, rows, State::bytes)
    }

    /// The bytes of a cache of `layers`, some layers of a model whose groups have these `windows`.
    /// `row_bytes` tells the bytes of a block of rows, `state_bytes` those of a state.
    pub(crate) fn of_groups(
        layers: &[LayerCache],
        windows: &[Option<usize>],
        block: usize,
        row_bytes: impl Fn(&Rows) -> usize,
        state_bytes: impl Fn(&State) -> usize,
    ) -> Self {
        let LayerBytes { groups, states, .. } =
            LayerBytes::of(layers, windows, row_bytes, state_bytes);
        let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as usize;
        let group = |(&window, bytes): (&Option<usize>, &Vec<u64>)| GroupBytes {
            window,
            block_bytes: sum(bytes),
        };
        let groups = windows.iter().zip(&groups).map(group).collect();
        Self { block, groups, slot: sum(&states) }
    }

    /// Bytes that each further token of a long sequence takes, rounded up.
    pub fn per_token(&self) -> usize {
        self.groups.first().map_or(0, |trunk| trunk.block_bytes.div_ceil(self.block))
    }

    /// Bytes of the rows that a running sequence of any length sees through windows, in whole
    /// blocks.
    pub fn per_sequence(&self) -> Option<usize> {
        let bytes = |group: &GroupBytes| {
            window_blocks(group.window?, self.block).checked_mul(group.block_bytes)
        };
        let windowed = self.groups.iter().skip(1).map(bytes);
        windowed.into_iter().try_fold(0_usize, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Bytes of the blocks of one sequence of `tokens`.
    pub fn of_tokens(&self, tokens: usize) -> Option<usize> {
        let blocks = tokens.div_ceil(self.block);
        let bytes = |group: &GroupBytes| {
            let most = group.window.map_or(usize::MAX, |window| window_blocks(window, self.block));
            blocks.min(most).checked_mul(group.block_bytes)
        };
        let trunk = self.groups.first().map_or(Some(0), |it| blocks.checked_mul(it.block_bytes))?;
        let windowed = self.groups.iter().skip(1).map(bytes);
        windowed.into_iter().try_fold(trunk, |sum, bytes| sum.checked_add(bytes?))
    }
}

/// Number of blocks that hold what a sequence sees through a window: the first is seen in part, and
/// the last is being filled.
pub(crate) fn window_blocks(window: usize, block: usize) -> usize {
    window.div_ceil(block).saturating_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::State;

    #[test]
    fn sizes_are_those_of_whole_blocks() {
        let group = |window, block_bytes| GroupBytes { window, block_bytes };
        let groups = vec![group(None, 320), group(Some(100), 64), group(Some(8), 32)];
        let bytes = CacheBytes { block: 32, groups, slot: 1000 };
        assert_eq!(bytes.per_token(), 10);
        assert_eq!(bytes.per_sequence(), Some(6 * 64 + 3 * 32));
        assert_eq!(bytes.of_tokens(33), Some(2 * (320 + 64 + 32)));
        assert_eq!(bytes.of_tokens(3200), Some(100 * 320 + 6 * 64 + 3 * 32));
        assert_eq!(bytes.of_tokens(usize::MAX), None);
    }

    #[test]
    fn all_layers_count() {
        let state = State { heads: 2, key_heads: 1, keys: 4, values: 16, channel_decay: false };
        let layer = LayerCache::heads(2, 32, None, None);
        let windowed = LayerCache::heads(2, 32, None, Some(64));
        let layers = [LayerCache { state: Some(state), ..layer.clone() }, windowed, layer];
        let bytes = CacheBytes::of(&layers, 32, KvType::F32);
        let group =
            |window, layers: usize| GroupBytes { window, block_bytes: layers * 32 * 2 * 32 * 8 };
        assert_eq!(bytes.groups, [group(None, 2), group(Some(64), 1)]);
        assert_eq!(bytes.slot, 2 * 4 * 16 * 4);
    }
}
