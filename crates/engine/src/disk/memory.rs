//! The memory of a cache whose blocks are stored.

use super::parts::CacheParts;
use crate::ranks::disk_message::DiskTask;
use store::{Keyspace, Store};

/// The memory of a cache whose blocks are stored, and where a store has them.
pub(crate) trait CacheMemory {
    /// The parts that the model has.
    ///
    /// # Errors
    ///
    /// Why its blocks cannot be stored.
    fn parts(&self) -> Result<CacheParts, &'static str>;

    /// Opens what `store` has of the model, where `digest` is that of all bytes of the weights.
    ///
    /// # Errors
    ///
    /// Why its blocks cannot be stored.
    fn open(&self, store: &Store, digest: &str) -> Result<Keyspace, &'static str>;

    /// Copies the bytes of a block of a group to `out`.
    fn read_block(&self, group: usize, block: u32, out: &mut [u8]);

    /// Sets the bytes of a block of a group.
    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]);

    /// Copies the bytes of the state in a slot to `out`.
    fn read_state(&self, slot: u32, out: &mut [u8]);

    /// Sets the bytes of the state in a slot.
    fn write_state(&mut self, slot: u32, bytes: &[u8]);

    /// Whether other ranks have parts of the cache.
    fn has_other_ranks(&self) -> bool {
        false
    }

    /// Has all other ranks do something with their parts.
    fn tell_others(&mut self, _task: &DiskTask) {}

    /// Waits for the answers of all other ranks under a ticket; returns the least, or `None` where
    /// there are no others. A rank that has ended answers 0.
    fn answer_of_others(&mut self, _ticket: u64) -> Option<u32> {
        None
    }
}
