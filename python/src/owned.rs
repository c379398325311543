//! Values that belong to the process that made them.
//!
//! A forked process has one thread: locks that another thread held stay locked, and no thread
//! computes. So nothing of a model is used there, and nothing is dropped.

use crate::errors::EngineError;
use pyo3::PyResult;
use std::process;

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// In a process that was forked from the one that made it.
    pub fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if process::id() == self.process => Ok(value),
            _ => Err(EngineError::new_err(format!(
                "the engine was loaded by process {}, and this is process {}: after a fork, load \
                 a model in the new process, or start processes with the method \"spawn\"",
                self.process,
                process::id()
            ))),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if process::id() != self.process {
            std::mem::forget(self.value.take());
        }
    }
}
