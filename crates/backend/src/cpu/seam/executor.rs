//! Threads and steps of the CPU.

use super::super::Cpu;
use crate::{Batch, CPU, Device, Error, Executor, Memory};
use base::Profile;
use std::sync::Arc;

impl Executor for Cpu {
    fn device(&self) -> &'static Device {
        &CPU
    }

    fn identity(&self) -> String {
        self.isa.name().to_owned()
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn pin_caller(&self) {
        self.pool.pin_caller();
    }

    fn profile(&mut self, profile: Option<Arc<Profile>>) {
        self.pool.profile(profile);
    }

    fn begin_other(&self, operation: &str) {
        self.pool.begin(operation);
    }

    fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.pool.for_each(count, work);
    }

    fn begin(&mut self, batch: &Batch) {
        self.matrices.begin_step(self.isa, &self.pool);
        self.expert_scratch.note_batch(batch);
        self.matrices.stream.begin_step(self.expert_scratch.is_counted(), batch.rows());
    }

    fn end(&mut self) -> Result<(), Error> {
        self.matrices.end_step();
        self.matrices.stream.take_failure().map_or(Ok(()), Err)
    }

    fn memory(&self) -> Memory {
        self.memory_in_use()
    }
}
