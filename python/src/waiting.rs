//! Waiting without the interpreter.

use pyo3::{PyResult, Python};
use std::time::Duration;

/// Time between two looks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Calls `step`, which waits at most for the given time and returns `None` if there is nothing yet,
/// until it gives a value. Other threads of Python run meanwhile.
///
/// # Errors
/// Those of `step`, and those of Python's signal handlers, such as `KeyboardInterrupt`.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut step: impl FnMut(Duration) -> PyResult<Option<T>> + Send,
) -> PyResult<T> {
    loop {
        if let Some(found) = py.detach(|| step(SLICE))? {
            return Ok(found);
        }
        py.check_signals()?;
    }
}
