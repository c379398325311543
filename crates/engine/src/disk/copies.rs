//! Copies of blocks of any kind, out of the cache and into it.

use super::memory::CacheMemory;
use super::parts::CacheParts;
use std::time::Duration;

/// Pause while a store has no buffer to copy to.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// Copies the bytes of a block of a kind from its place in the cache.
pub(super) fn copy_out(
    parts: &CacheParts,
    kind: usize,
    place: u32,
    memory: &dyn CacheMemory,
    out: &mut [u8],
) {
    match parts.group(kind) {
        Some(group) => memory.read_block(group, place, out),
        None => memory.read_state(place, out),
    }
}

/// Sets the bytes of a block of a kind at its place in the cache.
pub(super) fn copy_in(
    parts: &CacheParts,
    kind: usize,
    place: u32,
    memory: &mut dyn CacheMemory,
    bytes: &[u8],
) {
    match parts.group(kind) {
        Some(group) => memory.write_block(group, place, bytes),
        None => memory.write_state(place, bytes),
    }
}
