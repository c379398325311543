//! The cache of the CPU.

use super::super::Cpu;
use super::super::kv::KvCache;
use super::super::states::StateMemory;
use crate::{BlockCopy, Cache, CacheSpec, Error, StoredBlocks};
use std::ops::Range;

impl Cache for Cpu {
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        (self.kv, self.states) = (KvCache::new(&self.pool, spec)?, StateMemory::new(spec)?);
        self.warm_up(spec);
        Ok(())
    }

    fn touch_cache(&mut self, group: usize, blocks: Range<usize>) {
        self.kv.touch(&self.pool, group, blocks);
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

impl StoredBlocks for Cpu {
    fn fingerprint(&self) -> Vec<f32> {
        kernels::fingerprint(self.isa)
    }

    fn read_block(&self, group: usize, block: u32, out: &mut [u8]) {
        self.kv.read_block(&self.pool, group, block, out);
    }

    fn write_block(&mut self, group: usize, block: u32, bytes: &[u8]) {
        self.kv.write_block(&self.pool, group, block, bytes);
    }

    fn read_state(&self, slot: u32, out: &mut [u8]) {
        self.states.read(slot, out);
    }

    fn write_state(&mut self, slot: u32, bytes: &[u8]) {
        self.states.write(slot, bytes);
    }
}
