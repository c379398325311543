//! Calls of routes.

use crate::errors;
use crate::owned::Owned;
use crate::ready::Ready;
use crate::server::Server;
use crate::waiting;
use calls::NextChunk;
use pyo3::types::PyBytes;
use pyo3::{Bound, IntoPyObjectExt, Py, PyAny, PyResult, Python, pyclass, pymethods};
use std::time::{Duration, Instant};

/// A request under way. To drop it cancels it.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Call {
    call: Owned<calls::Call>,
    /// Not freed while an answer is read, even if the caller holds nothing else of it.
    _server: Py<Server>,
}

/// Says that nothing has come yet.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Pending;

impl Call {
    pub fn new(call: calls::Call, server: Py<Server>) -> Self {
        Self { call: Owned::new(call), _server: server }
    }
}

#[pymethods]
impl Call {
    /// Waits for the status.
    fn status(&self, py: Python<'_>) -> PyResult<u16> {
        let call = self.call.get()?;
        waiting::wait(py, |most| {
            let started = Instant::now();
            match call.wait_status(Some(most)) {
                // Before the time is over, it says that there will be none.
                None if started.elapsed() < most => Err(errors::stopped()),
                status => Ok(status),
            }
        })
    }

    /// Waits for the next chunk; `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        let call = self.call.get()?;
        let next = waiting::wait(py, |most| match call.next(Some(most)) {
            NextChunk::TimedOut => Ok(None),
            next => Ok(Some(next)),
        })?;
        match next {
            NextChunk::Chunk(bytes) => Ok(Some(PyBytes::new(py, &bytes).unbind())),
            NextChunk::Stopped => Err(errors::stopped()),
            NextChunk::End | NextChunk::TimedOut => Ok(None),
        }
    }

    /// The next chunk, `None` at the end, or `Pending`.
    fn next_now<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.call.get()?.next(Some(Duration::ZERO)) {
            NextChunk::Chunk(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            NextChunk::End => Ok(py.None().into_bound(py)),
            NextChunk::Stopped => Err(errors::stopped()),
            NextChunk::TimedOut => Pending.into_bound_py_any(py),
        }
    }

    /// Adds `key` to `ready` whenever `next_now` gives something.
    fn on_ready(&self, ready: &Ready, key: u64) -> PyResult<()> {
        let keys = ready.keys()?;
        self.call.get()?.on_ready(Box::new(move || keys.add(key)));
        Ok(())
    }

    fn cancel(&self) -> PyResult<()> {
        self.call.get()?.cancel();
        Ok(())
    }
}
