//! The memory of a cache: its blocks and states.

use crate::handles::KvType;
use kernels::kv::{LayerCache, Rows};

/// The memory of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheSpec<'a> {
    /// The layers of this rank.
    pub layers: &'a [LayerCache],
    /// Positions of a block.
    pub block: usize,
    /// Window and number of blocks of each group.
    pub groups: &'a [GroupSize],
    /// State slots.
    pub states: usize,
    /// Rows of guesses that may wait in a slot.
    pub guesses: usize,
    /// Storage type of rows that have none of their own.
    pub ty: KvType,
}

/// A group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// Positions for which its rows are looked at.
    pub window: Option<usize>,
    /// Number of blocks.
    pub blocks: usize,
}

impl CacheSpec<'_> {
    /// The group of rows of this window.
    ///
    /// # Panics
    /// If no group has this window.
    pub fn group_of(&self, rows: &Rows) -> usize {
        let group = self.groups.iter().position(|group| group.window == rows.window);
        group.expect("every window has a group")
    }
}
