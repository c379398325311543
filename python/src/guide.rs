//! A grammar, step by step.

use calls::LocalServer;
use pyo3::exceptions::PyValueError;
use pyo3::types::PyBytes;
use pyo3::{Bound, PyErr, PyResult, Python, pyclass, pymethods};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use text::{GrammarSource, Matcher};

/// The state of a text in its grammar.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Guide(Mutex<Matcher>);

/// What a text is held to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GuideBody {
    JsonSchema(Value),
    Regex(String),
    Choice(Vec<String>),
    Grammar(String),
}

impl Guide {
    /// The state before the first token of `source`, which is JSON.
    pub fn new(source: &str, server: &LocalServer) -> PyResult<Self> {
        let source = match serde_json::from_str(source) {
            Ok(GuideBody::JsonSchema(schema)) => GrammarSource::JsonSchema(schema),
            Ok(GuideBody::Regex(regex)) => GrammarSource::Regex(regex),
            Ok(GuideBody::Choice(texts)) => GrammarSource::Choice(texts),
            Ok(GuideBody::Grammar(text)) => GrammarSource::of_grammar(text),
            Err(error) => return Err(wrong(error)),
        };
        let matcher = server.engine().service().matcher(&source).map_err(wrong)?;
        Ok(Self(Mutex::new(matcher)))
    }

    fn lock(&self) -> MutexGuard<'_, Matcher> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Guide {
    /// The bits of the tokens that may come next, the lowest first, and whether the text may end.
    fn mask<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, bool)> {
        let (words, may_end) = py.detach(|| {
            let mut allowed = Vec::new();
            let may_end = self.lock().mask(|words| allowed.extend_from_slice(words));
            may_end.map(|may_end| (allowed, may_end)).map_err(wrong)
        })?;
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok((PyBytes::new(py, &bytes), may_end))
    }

    fn accept(&self, py: Python<'_>, token: u32) -> PyResult<()> {
        py.detach(|| self.lock().accept(token).map_err(wrong))
    }

    fn rollback(&self, py: Python<'_>, tokens: usize) -> PyResult<()> {
        py.detach(|| self.lock().rollback(tokens).map_err(wrong))
    }

    fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    fn fork(&self, py: Python<'_>) -> Self {
        py.detach(|| Self(Mutex::new(self.lock().clone())))
    }
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
