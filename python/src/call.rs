//! Calls of routes.

use crate::errors;
use crate::owned::Owned;
use crate::ready::Ready;
use crate::waiting;
use calls::NextChunk;
use pyo3::types::PyBytes;
use pyo3::{Bound, IntoPyObjectExt, Py, PyAny, PyResult, Python, pyclass, pymethods};
use std::time::{Duration, Instant};

/// A request under way. To drop it cancels it.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Call(Owned<calls::Call>);

/// Says that nothing has come yet.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Pending;

impl Call {
    pub fn new(call: calls::Call) -> Self {
        Self(Owned::new(call))
    }
}

#[pymethods]
impl Call {
    /// Waits for the status.
    fn status(&self, py: Python<'_>) -> PyResult<u16> {
        let call = self.0.get()?;
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
        let call = self.0.get()?;
        let next = waiting::wait(py, |most| match call.next(Some(most)) {
            NextChunk::TimedOut => Ok(None),
            next => Ok(Some(next)),
        })?;
        Ok(match next {
            NextChunk::Chunk(bytes) => Some(PyBytes::new(py, &bytes).unbind()),
            _ => None,
        })
    }

    /// The next chunk, `None` at the end, or `Pending`.
    fn next_now<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.get()?.next(Some(Duration::ZERO)) {
            NextChunk::Chunk(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            NextChunk::End => Ok(py.None().into_bound(py)),
            NextChunk::TimedOut => Pending.into_bound_py_any(py),
        }
    }

    /// Adds `key` to `ready` whenever `next_now` gives something.
    fn on_ready(&self, ready: &Ready, key: u64) -> PyResult<()> {
        let keys = ready.keys()?;
        self.0.get()?.on_ready(Box::new(move || keys.add(key)));
        Ok(())
    }

    fn cancel(&self) -> PyResult<()> {
        self.0.get()?.cancel();
        Ok(())
    }
}
