//! What executes: its identity, threads and memory, and the steps that it computes.

use super::device::Device;
use crate::batch::Batch;
use crate::error::Error;
use crate::memory::{FreeMemory, Memory};
use base::Profile;
use std::sync::Arc;

/// An open device.
pub trait Executor: Send {
    /// The table entry of the device.
    fn device(&self) -> &'static Device;
    /// Name of the arithmetic of this backend: equal names stand for equal bits.
    fn identity(&self) -> String;
    /// Number of compute threads.
    fn threads(&self) -> usize;
    /// Pins the calling thread, which should only compute from now on, if the others are pinned.
    fn pin_caller(&self) {}
    /// Hands the times of operations to `profile` from now on, where the backend takes them.
    fn profile(&mut self, _profile: Option<Arc<Profile>>) {}
    /// Begins work of the caller that is no operation of the backend, for the profile.
    fn begin_other(&self, _operation: &str) {}
    /// Calls `work(index)` for every index below `count`, each once, on the threads that compute;
    /// on the calling thread where the device has none of the host's.
    fn share_work(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
    /// Bytes of weights, workspace and KV cache.
    fn memory(&self) -> Memory;
    /// The memory that is left; `None` if the system does not tell.
    fn free_memory(&self) -> Option<FreeMemory> {
        FreeMemory::of_this_machine(self.memory())
    }
    /// Begins the step that computes `batch`. Operations that take a batch are given this one until
    /// the next step begins.
    fn begin(&mut self, _batch: &Batch) {}
    /// Ends the step.
    ///
    /// # Errors
    /// If the device failed since the last step ended: what was read since is undefined, and so are
    /// the weights and the cache.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
