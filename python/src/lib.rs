//! The native part of the Python module `gannet`: a loaded model, calls of its routes, sequences,
//! samplers and grammars. The shape of the interface is in Python, next to this crate's sources.
//!
//! Invariant: every wait releases the interpreter and looks for signals at least every 100 ms; no
//! thread of the engine or of calls waits for the interpreter; a process that was forked from the
//! one that loaded a model touches nothing of it.

mod allocator;
mod call;
mod command;
mod errors;
mod guide;
mod listening;
mod owned;
mod ready;
mod sampler;
mod sequence;
mod server;
mod tokens;
mod waiting;

use pyo3::pymodule;

/// The module.
#[pymodule]
mod _gannet {
    #[pymodule_export]
    use crate::call::{Call, Pending};
    #[pymodule_export]
    use crate::command::main;
    #[pymodule_export]
    use crate::errors::{EngineError, ModelError};
    #[pymodule_export]
    use crate::guide::Guide;
    #[pymodule_export]
    use crate::listening::Listening;
    #[pymodule_export]
    use crate::ready::Ready;
    #[pymodule_export]
    use crate::sampler::Sampler;
    #[pymodule_export]
    use crate::sequence::{Rows, Sequence};
    #[pymodule_export]
    use crate::server::{Server, engine_options};
    #[pymodule_export]
    use crate::tokens::{Decoder, Stops};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python gives it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
