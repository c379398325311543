//! The cache: blocks of rows and slots of states.

use crate::batch::BlockCopy;
use crate::cache_spec::CacheSpec;
use crate::error::Error;
use crate::handles::KvType;
use kernels::kv::{Rows, State};
use std::ops::Range;

/// Holds what layers keep of sequences.
pub trait Cache {
    /// Allocates the cache: zeroed blocks for the rows of all layers, and state slots.
    ///
    /// # Errors
    /// If a head is too large, a storage type does not fit, or there is not enough memory.
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error>;
    /// Bytes of a block of `block` positions of `rows`, held in `ty` where they have no type of
    /// their own.
    fn block_bytes(&self, rows: &Rows, block: usize, ty: KvType) -> usize {
        rows.block_bytes(block, ty)
    }
    /// Bytes of a slot for `state`.
    fn state_bytes(&self, state: &State) -> usize {
        state.bytes()
    }
    /// Touches the memory of `blocks` of a group of rows, so that the system provides it before it
    /// is written.
    fn touch_cache(&mut self, _group: usize, _blocks: Range<usize>) {}
    /// Copies blocks in all layers, one after the other.
    fn copy_blocks(&mut self, copies: &[BlockCopy]);
    /// Copies the states of all layers, one pair of slots (from, to) after the other.
    fn copy_states(&mut self, copies: &[(u32, u32)]);
    /// The bytes of blocks and states; `None` where the device does not give them.
    fn stored(&self) -> Option<&dyn StoredBlocks> {
        None
    }
    /// As [`stored`](Self::stored), to change them.
    fn stored_mut(&mut self) -> Option<&mut dyn StoredBlocks> {
        None
    }
}

/// Blocks and states as bytes, which are read and written between steps.
pub trait StoredBlocks {
    /// What this machine, not the program, contributes to bits: equal values on machines whose
    /// blocks and states are the same.
    fn fingerprint(&self) -> Vec<f32>;
    /// Copies the bytes of a block of a group, layer by layer, to `out`. They mean the same to
    /// every backend of this identity.
    ///
    /// # Panics
    /// If the length is wrong.
    fn read_block(&self, group: usize, block: u32, out: &mut [u8]);
    /// Sets the bytes of a block of a group to `bytes`, which [`read_block`](Self::read_block)
    /// gave.
    ///
    /// # Panics
    /// If the length is wrong.
    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]);
    /// Copies the bytes of the state in a slot, layer by layer, to `out`, without guessed rows that
    /// wait.
    ///
    /// # Panics
    /// If the length is wrong.
    fn read_state(&self, slot: u32, out: &mut [u8]);
    /// Sets the state in a slot to `bytes`, which [`read_state`](Self::read_state) gave.
    ///
    /// # Panics
    /// If the length is wrong.
    fn write_state(&mut self, slot: u32, bytes: &[u8]);
}
