//! The memory of a runner's cache, as what stores it on disk sees it.

use super::agreed_options::machine;
use super::cache_bytes::LayerBytes;
use super::disk_place::DiskPlace;
use super::error::Error;
use super::runner::Runner;
use crate::disk::{CacheMemory, CacheParts};
use crate::ranks::disk_message::DiskTask;
use backend::StoredBlocks;
use store::{Keyspace, Store};

impl Runner {
    /// Touches the memory of `blocks` of a group of cached rows, so that the system provides it.
    pub fn touch_cache(&mut self, group: usize, blocks: std::ops::Range<usize>) {
        self.backend.touch_cache(group, blocks);
    }

    /// What this machine, not the program, contributes to bits, as a name; empty where it is
    /// nothing, and for GPUs, whose arithmetic is their own name.
    pub(crate) fn machine(&self) -> String {
        machine(&*self.backend)
    }

    /// The bytes of blocks and states, which can be stored on disk.
    ///
    /// # Errors
    ///
    /// Why they cannot.
    pub(crate) fn stored(&self) -> Result<&dyn StoredBlocks, &'static str> {
        self.backend.stored().ok_or("the device does not give the bytes of its cache")
    }

    /// Bytes of blocks and states in each layer.
    pub(crate) fn layer_bytes(&self) -> &LayerBytes {
        &self.layer_bytes
    }

    /// Copies states, one pair of slots (from, to) after the other, on all ranks.
    ///
    /// # Errors
    ///
    /// If a rank has ended.
    pub(crate) fn copy_states(&mut self, copies: &[(u32, u32)]) -> Result<(), Error> {
        if let Some(leader) = &mut self.leader {
            leader.copy_states(copies).map_err(models::Error::from)?;
        }
        self.backend.copy_states(copies);
        Ok(())
    }
}

impl CacheMemory for Runner {
    fn parts(&self) -> Result<CacheParts, &'static str> {
        self.stored()?;
        let windows = self.groups.iter().map(|group| group.window.is_some()).collect();
        Ok(CacheParts { windows, states: self.states > 0 })
    }

    fn open(&self, store: &Store, digest: &str) -> Result<Keyspace, &'static str> {
        Ok(DiskPlace::of(self)?.open(store, digest))
    }

    fn read_block(&self, group: usize, block: u32, out: &mut [u8]) {
        self.stored().expect(CHECKED).read_block(group, block, out);
    }

    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]) {
        self.backend.stored_mut().expect(CHECKED).write_block(group, block, bytes);
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        self.stored().expect(CHECKED).read_state(slot, out);
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        self.backend.stored_mut().expect(CHECKED).write_state(slot, bytes);
    }

    fn has_other_ranks(&self) -> bool {
        self.leader.is_some()
    }

    fn tell_others(&mut self, task: &DiskTask) {
        if let Some(leader) = &mut self.leader {
            // The next step fails too where a rank has ended.
            let _ = leader.disk(task).is_ok();
        }
    }

    fn answer_of_others(&mut self, ticket: u64) -> Option<u32> {
        let leader = self.leader.as_mut()?;
        Some(leader.disk_answer(ticket).unwrap_or(0))
    }
}

/// Why a cache that is stored has bytes.
const CHECKED: &str = "`parts` has checked that blocks can be stored";
