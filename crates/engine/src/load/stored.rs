//! The memory of a runner's cache, as what stores it on disk sees it.

use super::runner::Runner;
use crate::load::cache_bytes::LayerBytes;

impl Runner {
    /// Touches the memory of `blocks` of a group of cached rows, so that the system provides it.
    pub fn touch_cache(&mut self, group: usize, blocks: std::ops::Range<usize>) {
        self.backend.touch_cache(group, blocks);
    }

    /// Whether blocks can be stored on disk.
    ///
    /// # Errors
    ///
    /// If not, with the reason.
    pub(crate) fn stores_blocks(&self) -> Result<(), &'static str> {
        if !self.backend.stores_blocks() {
            return Err("the device does not give the bytes of its cache");
        }
        if self.is_stage {
            return Err("the layers are divided among several processes");
        }
        Ok(())
    }

    /// As [`Backend::fingerprint`].
    pub(crate) fn fingerprint(&self) -> Vec<f32> {
        self.backend.fingerprint()
    }

    /// Bytes of blocks and states in each layer.
    pub(crate) fn layer_bytes(&self) -> &LayerBytes {
        &self.layer_bytes
    }

    /// Appends the bytes of a block of a group to `out`.
    pub(crate) fn read_block(&self, group: usize, block: u32, out: &mut [u8]) {
        self.backend.read_block(group, block, out);
    }

    /// Sets the bytes of a block of a group.
    pub(crate) fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]) {
        self.backend.write_block(group, block, bytes);
    }

    /// Appends the bytes of the state in a slot to `out`.
    pub(crate) fn read_state(&self, slot: u32, out: &mut [u8]) {
        self.backend.read_state(slot, out);
    }

    /// Sets the bytes of the state in a slot.
    pub(crate) fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        self.backend.write_state(slot, bytes);
    }

    /// Copies states, one pair of slots (from, to) after the other.
    pub(crate) fn copy_states(&mut self, copies: &[(u32, u32)]) {
        self.backend.copy_states(copies);
    }
}
