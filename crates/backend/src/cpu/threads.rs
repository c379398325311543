//! Which CPUs the threads run on, and how many of them share a product.

use super::Cpu;
use crate::{Error, Matrix};
use base::numa;

impl Cpu {
    /// Pins every thread but the caller's to a CPU of its own.
    ///
    /// # Errors
    /// If the system cannot pin threads.
    pub fn pin_threads(&self) -> Result<(), Error> {
        self.pool.pin().map_err(Error::Pin)
    }

    /// Binds threads to the NUMA nodes of this machine, and each to a CPU of its own if `pin`.
    ///
    /// # Errors
    /// If the system does not describe nodes or cannot bind threads.
    pub fn bind_to_nodes(&mut self, pin: bool) -> Result<(), Error> {
        self.pool.bind_to_nodes(numa::NODES.as_ref(), pin).map_err(Error::Nodes)
    }

    /// Limits the threads of the next products of `rows` rows to what each of the matrices allows.
    pub(super) fn limit(&self, matrices: impl IntoIterator<Item = Matrix>, rows: usize) {
        let limits = matrices.into_iter();
        self.pool.limit(limits.filter_map(|m| self.matrices.get(m.0).threads.of(rows)).min());
    }
}
