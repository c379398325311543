//! Token ids between Python and Rust, and text from tokens one by one.

use crate::server::Server;
use pyo3::exceptions::PyValueError;
use pyo3::{Py, PyResult, Python, pyclass, pymethods};
use std::sync::{Mutex, PoisonError};
use text::{IncrementalDecoder, StopStep, StopStrings};

/// Bytes of a number in arrays.
const BYTES: usize = 4;

/// The ids of an array of 32-bit numbers in the order of bytes of this machine.
///
/// # Errors
/// If the array is cut off.
pub(crate) fn ids(bytes: &[u8]) -> PyResult<Vec<u32>> {
    words(bytes, "token ids").map(|words| words.map(u32::from_ne_bytes).collect())
}

/// The floats of an array of 32-bit numbers, the lowest byte first.
///
/// # Errors
/// If the array is cut off.
pub(crate) fn floats(bytes: &[u8]) -> PyResult<Vec<f32>> {
    words(bytes, "logits").map(|words| words.map(f32::from_le_bytes).collect())
}

fn words(bytes: &[u8], what: &str) -> PyResult<impl Iterator<Item = [u8; BYTES]>> {
    let (words, rest) = bytes.as_chunks::<BYTES>();
    if rest.is_empty() {
        return Ok(words.iter().copied());
    }
    let message = format!("{what}: expected 4 bytes each, found {} bytes", bytes.len());
    Err(PyValueError::new_err(message))
}

/// Turns tokens into text, one by one.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Decoder {
    server: Py<Server>,
    decoder: Mutex<IncrementalDecoder>,
}

#[pymethods]
impl Decoder {
    /// A decoder that continues a text, without special tokens.
    #[new]
    fn new(server: Py<Server>) -> Self {
        Self { server, decoder: Mutex::new(IncrementalDecoder::continuing(true)) }
    }

    fn push(&self, py: Python<'_>, token: u32) -> PyResult<String> {
        let server = self.server.get().open()?;
        py.detach(|| {
            let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(decoder.push(server.engine().service().tokenizer(), token))
        })
    }

    fn finish(&self) -> String {
        self.decoder.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

/// Finds the stop strings of a text that comes in pieces.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Stops(Mutex<StopStrings>);

#[pymethods]
impl Stops {
    #[new]
    fn new(stops: Vec<String>) -> Self {
        Self(Mutex::new(StopStrings::new(stops)))
    }

    /// Takes a piece; returns text that holds no part of a stop string, and the index of the one
    /// that was found.
    fn push(&self, piece: &str) -> (String, Option<usize>) {
        let mut stops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let StopStep { text, stopped } = stops.push(piece);
        (text, stopped)
    }

    fn finish(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}
