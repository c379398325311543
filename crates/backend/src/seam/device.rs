//! Kinds of devices: what a model can be loaded into, and how it is opened.

use super::Backend;
use crate::error::Error;
use crate::handles::Mode;

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
    /// Name of its arithmetic or driver.
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
    /// Which of the devices of this kind: a number, or a part of a name. `None` for the first.
    pub which: Option<&'a str>,
    /// Most bytes of the device's memory; `None` for all.
    pub memory: Option<usize>,
}

/// How a backend holds a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the layout.
    pub layout: &'static str,
    /// Bytes of the copy in this layout; `None` if the bytes of the file are used as they are.
    pub bytes: Option<usize>,
}
