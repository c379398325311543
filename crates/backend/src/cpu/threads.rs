//! Which CPUs the threads run on.

use super::machine::Cpu;
use crate::error::Error;
use base::numa;

impl Cpu {
    /// Pins every thread but the caller's to a CPU of its own.
    ///
    /// # Errors
    /// If the system cannot pin threads.
    pub fn pin_threads(&self) -> Result<(), Error> {
        self.core.pool.pin().map_err(Error::Pin)
    }

    /// Binds threads to the NUMA nodes of this machine, and each to a CPU of its own if `pin`.
    ///
    /// # Errors
    /// If the system does not describe nodes or cannot bind threads.
    pub fn bind_to_nodes(&mut self, pin: bool) -> Result<(), Error> {
        self.core.pool.bind_to_nodes(numa::NODES.as_ref(), pin).map_err(Error::Nodes)
    }
}
