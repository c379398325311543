//! The cache of the reference: rows of f32 for every place of every block, and states.

use super::rows::Rows;
use crate::batch::{Batch, SequenceRows};
use crate::cache_spec::CacheSpec;
use crate::error::Error;
use crate::handles::KvType;
use kernels::kv::{RowLayout, State};

/// Rows of one kind of one layer.
pub(super) struct CachedRows {
    pub spec: kernels::kv::Rows,
    pub group: usize,
    /// Positions of a block.
    block: usize,
    /// `[blocks * places, heads * dim]`.
    pub keys: Rows,
    /// `[blocks * places, heads * dim]`; without rows where values are part of the keys.
    pub values: Rows,
}

impl CachedRows {
    /// Where row `number` of the sequence with this block table lies.
    pub fn slot(&self, number: usize, table: &[u32]) -> usize {
        let (index, place) = self.spec.place(number, self.block);
        table[index] as usize * self.spec.places(self.block) + place
    }

    /// The table of `sequence` for these rows.
    pub fn table<'a>(&self, batch: &'a Batch, sequence: &SequenceRows) -> &'a [u32] {
        batch.block_table(sequence, self.group)
    }

    pub fn copy(&mut self, from: u32, to: u32) {
        for Rows { width, values } in [&mut self.keys, &mut self.values] {
            let len = (self.spec.places(self.block) * *width).min(values.len());
            let (from, to) = (from as usize * len, to as usize * len);
            values.copy_within(from..from + len, to);
        }
    }
}

/// The state of one layer.
pub(super) struct CachedState {
    pub spec: State,
    /// `[heads, keys, values]` of each slot.
    pub slots: Vec<Vec<f32>>,
    /// Keys, values, decays and betas of the guessed rows of each slot.
    pub waiting: Vec<Vec<[Vec<f32>; 4]>>,
}

/// Everything that layers keep.
#[derive(Default)]
pub(super) struct ReferenceCache {
    pub layers: Vec<Vec<CachedRows>>,
    pub states: Vec<Option<CachedState>>,
}

impl ReferenceCache {
    /// Zeroed rows and states as `spec` describes them.
    ///
    /// # Errors
    /// If the type of the rows is not f32.
    pub fn new(spec: &CacheSpec<'_>) -> Result<Self, Error> {
        if spec.ty != KvType::F32 {
            return Err(Error::Device("the reference device has no KV cache but f32".to_owned()));
        }
        let rows = |rows: &kernels::kv::Rows| {
            let group = spec.group_of(rows);
            let (width, places) = (rows.heads * rows.dim, rows.places(spec.block));
            let count = spec.groups[group].blocks * places;
            let keys_only = !matches!(rows.layout, RowLayout::Heads { latent: None });
            CachedRows {
                spec: *rows,
                group,
                block: spec.block,
                keys: Rows::zeroed(count, width),
                values: Rows::zeroed(if keys_only { 0 } else { count }, width),
            }
        };
        let state = |state: State| CachedState {
            spec: state,
            slots: vec![vec![0.0; state.heads * state.keys * state.values]; spec.states],
            waiting: vec![Vec::new(); spec.states],
        };
        let layers = spec.layers.iter();
        Ok(Self {
            layers: layers.clone().map(|layer| layer.rows.iter().map(rows).collect()).collect(),
            states: layers.map(|layer| layer.state.map(state)).collect(),
        })
    }

    /// Bytes of rows, and of states.
    pub fn bytes(&self) -> (usize, usize) {
        let rows = self.layers.iter().flatten();
        let rows = rows.map(|rows| 4 * (rows.keys.values.len() + rows.values.values.len()));
        let states = self.states.iter().flatten().flat_map(|state| &state.slots);
        (rows.sum(), states.map(|slot| 4 * slot.len()).sum())
    }
}
