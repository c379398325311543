//! Errors of Rust as exceptions.

use calls::{CallError, OpenError};
use engine::LedError;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError, PyValueError};
use std::error::Error;

create_exception!(
    gannet,
    ModelError,
    PyException,
    "A model that cannot be loaded, with the name of the file and the problem."
);
create_exception!(
    gannet,
    EngineError,
    PyRuntimeError,
    "The engine has ended, or cannot be used in this process."
);

/// The engine was closed, or has ended.
pub(crate) fn stopped() -> PyErr {
    EngineError::new_err("the engine was closed or has ended")
}

/// A model that was not opened.
pub(crate) fn of_open(error: &OpenError) -> PyErr {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let source_text = source.to_string();
        // Some errors repeat their causes.
        if !text.contains(&source_text) {
            text = format!("{text}: {source_text}");
        }
        cause = source.source();
    }
    ModelError::new_err(text)
}

/// A call that was not made.
pub(crate) fn of_call(error: &CallError) -> PyErr {
    match error {
        CallError::UnknownOption { .. } => PyTypeError::new_err(error.to_string()),
        CallError::Stopped => stopped(),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// A sequence that does not do what was requested.
pub(crate) fn of_led(error: &LedError) -> PyErr {
    match error {
        LedError::Invalid(_) | LedError::TooLong { .. } => PyValueError::new_err(error.to_string()),
        _ => EngineError::new_err(error.to_string()),
    }
}
