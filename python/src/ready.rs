//! Which calls have something new, for event loops and for threads that wait for many calls.

use crate::owned::Owned;
use crate::waiting;
use pyo3::exceptions::PyOSError;
use pyo3::{PyResult, Python, pyclass, pymethods};
use std::io::{Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The keys of calls that have something new. Its descriptor is readable while there are any.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Ready(Owned<Arc<ReadyKeys>>);

/// What the threads of calls write and Python reads.
#[derive(Debug)]
pub(crate) struct ReadyKeys {
    keys: Mutex<Vec<u64>>,
    added: Condvar,
    reader: UnixStream,
    writer: UnixStream,
}

#[pymethods]
impl Ready {
    #[new]
    fn new() -> PyResult<Self> {
        let failed = |error: Error| PyOSError::new_err(format!("no socket pair: {error}"));
        let (reader, writer) = UnixStream::pair().map_err(failed)?;
        reader.set_nonblocking(true).map_err(failed)?;
        writer.set_nonblocking(true).map_err(failed)?;
        let (keys, added) = (Mutex::default(), Condvar::new());
        Ok(Self(Owned::new(Arc::new(ReadyKeys { keys, added, reader, writer }))))
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.0.get()?.reader.as_raw_fd())
    }

    /// The keys so far, each once; none if there are none.
    fn take(&self) -> PyResult<Vec<u64>> {
        let keys = self.0.get()?;
        Ok(keys.take(keys.lock()))
    }

    /// Waits for keys.
    fn wait(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let keys = self.0.get()?;
        waiting::wait(py, |most| Ok(keys.wait(most)))
    }
}

impl Ready {
    pub fn keys(&self) -> PyResult<Arc<ReadyKeys>> {
        self.0.get().map(Arc::clone)
    }
}

impl ReadyKeys {
    /// Adds a key. Never blocks for longer than another thread takes to do the same.
    pub fn add(&self, key: u64) {
        let mut keys = self.lock();
        if keys.is_empty() {
            // One byte stands for all keys; a full buffer is readable as well.
            let _ = (&self.writer).write(&[1]);
        }
        if !keys.contains(&key) {
            keys.push(key);
        }
        drop(keys);
        self.added.notify_all();
    }

    fn take(&self, mut keys: MutexGuard<'_, Vec<u64>>) -> Vec<u64> {
        let mut bytes = [0; 16];
        while (&self.reader).read(&mut bytes).is_ok_and(|count| count > 0) {}
        std::mem::take(&mut *keys)
    }

    fn wait(&self, most: Duration) -> Option<Vec<u64>> {
        let keys = self.lock();
        let waited = self.added.wait_timeout_while(keys, most, |keys| keys.is_empty());
        let (keys, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if keys.is_empty() { None } else { Some(self.take(keys)) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
