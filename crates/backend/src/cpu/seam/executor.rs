//! Threads and steps of the CPU.

use super::super::machine::Cpu;
use crate::batch::Batch;
use crate::cpu::device::CPU;
use crate::error::Error;
use crate::handles::{MatrixSpec, MemoryPolicy};
use crate::memory::Memory;
use crate::seam::Device;
use crate::seam::Executor;
use base::Profile;
use kernels::Arithmetic;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Executor for Cpu {
    fn device(&self) -> &'static Device {
        &CPU
    }

    fn identity(&self) -> String {
        self.core.isa.name().to_owned()
    }

    fn decide_arithmetic(&mut self, products: &BTreeSet<Arithmetic>) -> String {
        if products.iter().all(|it| it.is_portable()) {
            // Attention has no other arithmetic than products.
            self.core.isa = self.core.isa.portable();
        }
        Arithmetic::name_of_all(products)
    }

    fn threads(&self) -> usize {
        self.core.pool.threads()
    }

    fn pin_caller(&self) {
        self.core.pool.pin_caller();
    }

    fn profile(&mut self, profile: Option<Arc<Profile>>) {
        self.core.pool.profile(profile);
    }

    fn begin_other(&self, operation: &str) {
        self.core.pool.begin(operation);
    }

    fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.core.pool.for_each(count, work);
    }

    fn begin(&mut self, batch: &Batch) {
        self.products.matrices.begin_step(self.core.isa, &self.core.pool);
        self.experts.scratch.note_batch(batch);
        self.products.matrices.stream.begin_step(self.experts.scratch.is_counted(), batch.rows());
    }

    fn resume(&mut self, batch: &Batch) {
        self.products.matrices.resume_step();
        self.experts.scratch.note_batch(batch);
    }

    fn end(&mut self) -> Result<(), Error> {
        self.products.matrices.end_step();
        self.products.matrices.stream.take_failure().map_or(Ok(()), Err)
    }

    fn memory(&self) -> Memory {
        Memory {
            weights: self.weight_bytes(),
            workspace: self.core.buffers.iter().map(|b| 4 * b.data.len()).sum::<usize>()
                + self.ropes.bytes()
                + self.products.rounded.bytes()
                + self.experts.scratch.bytes()
                + self.low_rank.bytes()
                + self.attention.bytes()
                + self.compressed.bytes()
                + self.selections.bytes()
                + self.kept.bytes(),
            cache: self.kv.bytes(),
            states: self.states.bytes(),
        }
    }
}

impl Cpu {
    /// Bytes of weights held.
    fn weight_bytes(&self) -> usize {
        let matrices = &self.products.matrices;
        // A table that products use as well counts once.
        let held = |table: &&MatrixSpec| {
            let stays = matches!(table.memory, MemoryPolicy::Disk | MemoryPolicy::Rows);
            !stays && !matrices.uses(&table.bytes)
        };
        let tables = self.tables.iter().filter(held).map(|table| table.bytes.len());
        let vectors = self.core.vectors.iter().map(|vector| 4 * vector.len());
        matrices.bytes() + tables.sum::<usize>() + vectors.sum::<usize>()
    }
}
