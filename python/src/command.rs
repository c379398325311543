//! The command line.

use pyo3::{Python, pyfunction};
use std::ffi::OsString;

/// Runs the program with these arguments, the first of which is its name; gives the exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| cli::run(arguments))
}
