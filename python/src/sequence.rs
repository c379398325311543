//! Sequences that the caller leads, and the rows that they give.

use crate::errors;
use crate::owned::Owned;
use crate::tokens::ids;
use crate::waiting;
use calls::{SequenceOptions, ServerUser, ServerUsers, lock_all};
use engine::{Led, Outputs, Want};
use pyo3::exceptions::PyValueError;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyDictMethods};
use pyo3::{Bound, PyRef, PyResult, Python, pyclass, pymethods};
use serde::Deserialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A sequence that the caller leads, until it is ended, by itself or with its engine.
#[derive(Debug)]
struct LedCell(Mutex<Option<Led>>);

impl LedCell {
    fn lock(&self) -> MutexGuard<'_, Option<Led>> {
        lock(&self.0)
    }
}

impl ServerUser for LedCell {
    fn end(&self) {
        self.lock().take();
    }
}

/// A sequence that the caller leads.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Sequence {
    led: Owned<Arc<LedCell>>,
    /// What ends with the engine.
    users: Owned<Arc<ServerUsers>>,
    wanted: Mutex<Want>,
}

/// The options of a sequence.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct SequenceBody {
    max_tokens: Option<usize>,
    idle_seconds: f64,
    priority: i32,
    cache_salt: Option<String>,
    adapters: Option<Vec<(usize, f32)>>,
}

impl Default for SequenceBody {
    fn default() -> Self {
        let SequenceOptions { max_tokens, idle, priority, cache_salt, adapters } =
            SequenceOptions::default();
        Self { max_tokens, idle_seconds: idle.as_secs_f64(), priority, cache_salt, adapters }
    }
}

impl Sequence {
    /// A sequence with `options`, which are JSON.
    pub fn new(
        options: &str,
        server: &calls::LocalServer,
        users: &Arc<ServerUsers>,
    ) -> PyResult<Self> {
        let wrong = |problem: String| PyValueError::new_err(problem);
        let SequenceBody { max_tokens, idle_seconds, priority, cache_salt, adapters } =
            serde_json::from_str(options).map_err(|error| wrong(error.to_string()))?;
        let idle = Duration::try_from_secs_f64(idle_seconds)
            .map_err(|_| wrong("idle_seconds: expected a number from 0 on".to_owned()))?;
        let options = SequenceOptions { max_tokens, idle, priority, cache_salt, adapters };
        let led = server.lead(options).map_err(|error| errors::of_call(&error))?;
        Ok(Self::over(led, users))
    }

    fn over(led: Led, users: &Arc<ServerUsers>) -> Self {
        let led = Arc::new(LedCell(Mutex::new(Some(led))));
        let user: Weak<LedCell> = Arc::downgrade(&led);
        // One that comes after the end of the engine ends at once.
        if !users.add(user) {
            led.end();
        }
        let (led, users) = (Owned::new(led), Owned::new(Arc::clone(users)));
        Self { led, users, wanted: Mutex::default() }
    }

    /// Calls `act` with the sequence, without the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Led) -> Result<T, engine::LedError> + Send,
    ) -> PyResult<T> {
        let led = self.led.get()?;
        py.detach(|| {
            let mut led = led.lock();
            let led = led.as_mut().ok_or_else(errors::stopped)?;
            act(led).map_err(|error| errors::of_led(&error))
        })
    }
}

#[pymethods]
impl Sequence {
    /// Adds tokens to several sequences at once.
    #[staticmethod]
    fn start_together(
        py: Python<'_>,
        sequences: Vec<PyRef<'_, Self>>,
        tokens: Vec<PyBackedBytes>,
        want: Option<&str>,
    ) -> PyResult<()> {
        let want = wanted(want)?;
        let tokens = tokens.iter().map(|tokens| ids(tokens)).collect::<PyResult<Vec<_>>>()?;
        let cells = sequences.iter().map(|sequence| Ok(&sequence.led.get()?.0));
        let cells = cells.collect::<PyResult<Vec<_>>>()?;
        py.detach(|| {
            let twice = "sequences: expected different ones, found one twice";
            let guards = lock_all(&cells).ok_or_else(|| PyValueError::new_err(twice));
            let mut guards = guards?;
            let leds = guards.iter_mut().map(|led| led.as_mut().ok_or_else(errors::stopped));
            let leds = leds.collect::<PyResult<Vec<_>>>()?;
            let pushes = leds.into_iter().zip(&tokens).map(|(led, tokens)| (led, &**tokens, want));
            Led::start_together(pushes).map_err(|error| errors::of_led(&error))
        })?;
        sequences.iter().for_each(|sequence| *lock(&sequence.wanted) = want);
        Ok(())
    }

    /// Waits for the rows of the last `start`; `None` where none were wanted.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Rows>> {
        let led = self.led.get()?;
        let outputs = waiting::wait(py, |most| {
            // Locked for a moment at a time, so that the engine may be closed meanwhile.
            let mut led = led.lock();
            let led = led.as_mut().ok_or_else(errors::stopped)?;
            led.wait_for(most).map_err(|error| errors::of_led(&error))
        })?;
        let wanted = *lock(&self.wanted);
        Ok((wanted != Want::Nothing).then(|| Rows::new(outputs, wanted)))
    }

    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let led = self.with(py, Led::fork)?;
        Ok(Self::over(led, self.users.get()?))
    }

    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        self.with(py, |led| led.truncate(length))
    }

    fn length(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |led| Ok(led.len()))
    }

    fn tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.with(py, |led| Ok(led.tokens().to_vec()))
    }

    fn close(&self) -> PyResult<()> {
        self.led.get()?.end();
        Ok(())
    }
}

/// The outputs of a push that Python names.
fn wanted(want: Option<&str>) -> PyResult<Want> {
    match want {
        None => Ok(Want::Nothing),
        Some("last") => Ok(Want::Last),
        Some("all") => Ok(Want::All),
        Some("hidden") => Ok(Want::Hidden),
        Some(other) => {
            let expected = "want: expected last, all, hidden or None, found";
            Err(PyValueError::new_err(format!("{expected} {other:?}")))
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rows of 32-bit floats, for numpy.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Rows {
    values: Vec<f32>,
    shape: Vec<usize>,
}

impl Rows {
    fn new(outputs: Outputs, wanted: Want) -> Self {
        let width = outputs.width();
        let values = outputs.into_values();
        let shape = match wanted {
            Want::Last => vec![values.len()],
            _ => vec![values.len() / width.max(1), width],
        };
        Self { values, shape }
    }
}

#[pymethods]
impl Rows {
    /// Where the values are, which an array of numpy reads in place: it holds this object, whose
    /// values never change or move.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let is_read_only = true;
        interface.set_item("version", 3)?;
        interface
            .set_item("typestr", if cfg!(target_endian = "little") { "<f4" } else { ">f4" })?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.values.as_ptr().addr(), is_read_only))?;
        Ok(interface)
    }
}
