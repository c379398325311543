//! Kinds of devices, how one is opened, and what every one is.

use super::cache::Cache;
use super::operations::Operations;
use super::weights::Weights;
use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{Bits, Mode};
use crate::memory::{FreeMemory, Memory};
use base::Profile;
use kernels::Arithmetic;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A device that models are loaded into. Whatever implements the four traits is one.
pub trait Backend: Operations + Weights + Cache + Executor {}

impl<T: Operations + Weights + Cache + Executor> Backend for T {}

/// A kind of device. Every crate with a backend has one, and the crate `devices` lists them.
pub struct Device {
    /// Name in flags, rules and tables.
    pub name: &'static str,
    /// Whether weights and cache are in memory of its own, so that rules for a GPU mean it.
    pub is_gpu: bool,
    /// The devices of this kind on this machine.
    pub list: fn() -> Vec<DeviceInfo>,
    /// Opens an empty backend.
    ///
    /// # Errors
    /// If there is no such device, if it lacks what the backend needs or has no such mode, or if
    /// the system refuses threads or their pinning.
    pub open: fn(&DeviceOptions<'_>) -> Result<Box<dyn Backend>, Error>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that opens it, such as `cpu` or `wgpu:0`.
    pub name: String,
    /// Name of the hardware.
    pub hardware: String,
    /// Name of its instruction set or driver.
    pub driver: String,
    /// Bytes of memory that it has left, where they are known.
    pub memory: Option<usize>,
    /// What it lacks to run models.
    pub missing: Vec<String>,
    /// What a user should know about it.
    pub notes: Vec<String>,
}

/// Options of a backend.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions<'a> {
    /// Number of compute threads.
    pub threads: usize,
    /// Whether each thread is pinned to a CPU of its own.
    pub pin: bool,
    /// Whether threads are bound to NUMA nodes, which own parts of the work.
    pub numa: bool,
    /// The mode of products with matrices that name none.
    pub mode: Mode,
    /// Which bits products may have; those of a GPU are its own.
    pub bits: Bits,
    /// Which of the devices of this kind: a number, or a part of a name. `None` for the first.
    pub which: Option<&'a str>,
    /// Most bytes of the device's memory; `None` for all.
    pub memory: Option<usize>,
}

/// An open device.
pub trait Executor: Send {
    /// The table entry of the device.
    fn device(&self) -> &'static Device;
    /// Name of what computes: the instruction set of a CPU, the adapter and driver of a GPU.
    fn identity(&self) -> String;
    /// Decides the arithmetic of a model whose products have `products`, before anything of it is
    /// loaded. Returns its name: equal names stand for equal bits.
    fn decide_arithmetic(&mut self, _products: &BTreeSet<Arithmetic>) -> String {
        self.identity()
    }
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
    /// Continues the step that computes `batch`, after which other ones have begun.
    fn resume(&mut self, batch: &Batch) {
        self.begin(batch);
    }
    /// Ends the step, or the part of it since it was begun or resumed.
    ///
    /// # Errors
    /// If the device failed since the last step ended: what was read since is undefined, and so are
    /// the weights and the cache.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
