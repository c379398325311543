//! The cache of the CPU.

use super::super::kv::{self, KvCache};
use super::super::machine::Cpu;
use super::super::ops::sparse;
use super::super::scratch::scratch;
use super::super::states::StateMemory;
use crate::batch::BlockCopy;
use crate::cache_spec::CacheSpec;
use crate::error::Error;
use crate::seam::{Cache, StoredBlocks};
use kernels::kv::STATE_TILE;
use std::ops::Range;

impl Cache for Cpu {
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        (self.kv, self.states) = (KvCache::new(&self.core.pool, spec)?, StateMemory::new(spec)?);
        self.warm_up(spec);
        Ok(())
    }

    fn touch_cache(&mut self, group: usize, blocks: Range<usize>) {
        self.kv.touch(&self.core.pool, group, blocks);
    }

    fn copy_blocks(&mut self, copies: &[BlockCopy]) {
        copies.iter().for_each(|copy| self.kv.copy(*copy));
    }

    fn copy_states(&mut self, copies: &[(u32, u32)]) {
        copies.iter().for_each(|&(from, to)| self.states.copy(from, to));
    }

    fn stored(&self) -> Option<&dyn StoredBlocks> {
        Some(self)
    }

    fn stored_mut(&mut self) -> Option<&mut dyn StoredBlocks> {
        Some(self)
    }
}

impl Cpu {
    /// Makes the memory that operations on rows of a cache need, so that steps allocate nothing.
    fn warm_up(&mut self, spec: &CacheSpec<'_>) {
        let pool = &self.core.pool;
        if let Some((most, dim)) = kv::largest_plain(spec) {
            pool.run(&|_| sparse::warm_up(most, dim));
        }
        let states = spec.layers.iter().filter_map(|layer| layer.state);
        if let Some(tile) = states.map(|state| state.tile()).max() {
            let outputs = (1 + spec.guesses) * STATE_TILE;
            pool.run(&|_| scratch(tile + outputs, |_| ()));
        }
        let compressed = spec.layers.iter().flat_map(|layer| &layer.rows);
        let dim = compressed.filter(|rows| rows.every > 1).map(|rows| rows.dim).max();
        let buffers = self.core.buffers.iter();
        let rows = buffers.map(|buffer| buffer.data.len() / buffer.width.max(1)).max();
        if let (Some(dim), Some(rows)) = (dim, rows) {
            self.compressed.reserve(rows, dim);
        }
    }
}

impl StoredBlocks for Cpu {
    fn fingerprint(&self) -> Vec<f32> {
        kernels::fingerprint(self.core.isa)
    }

    fn read_block(&self, group: usize, block: u32, out: &mut [u8]) {
        self.kv.read_block(&self.core.pool, group, block, out);
    }

    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]) {
        self.kv.write_block(&self.core.pool, group, block, bytes);
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        self.states.read(slot, out);
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        self.states.write(slot, bytes);
    }
}
