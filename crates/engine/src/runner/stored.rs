//! The memory of a runner's cache, as what stores it on disk sees it.

use super::Runner;
use crate::cache_bytes::LayerBytes;
use backend::StoredBlocks;

impl Runner {
    /// Touches the memory of `blocks` of a group of cached rows, so that the system provides it.
    pub fn touch_cache(&mut self, group: usize, blocks: std::ops::Range<usize>) {
        self.backend.touch_cache(group, blocks);
    }

    /// The bytes of blocks and states, which can be stored on disk.
    ///
    /// # Errors
    ///
    /// Why they cannot.
    pub(crate) fn stored(&self) -> Result<&dyn StoredBlocks, &'static str> {
        let stored = self.backend.stored();
        let stored = stored.ok_or("the device does not give the bytes of its cache")?;
        match self.is_stage {
            true => Err("the layers are divided among several processes"),
            false => Ok(stored),
        }
    }

    /// As [`stored`](Self::stored), to change them.
    pub(crate) fn stored_mut(&mut self) -> Option<&mut dyn StoredBlocks> {
        self.backend.stored_mut()
    }

    /// Bytes of blocks and states in each layer.
    pub(crate) fn layer_bytes(&self) -> &LayerBytes {
        &self.layer_bytes
    }

    /// Copies states, one pair of slots (from, to) after the other.
    pub(crate) fn copy_states(&mut self, copies: &[(u32, u32)]) {
        self.backend.copy_states(copies);
    }
}
