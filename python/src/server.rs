//! A loaded model with the routes of the server.

use crate::allocator;
use crate::call::Call;
use crate::errors::{self, EngineError};
use crate::guide::Guide;
use crate::listening::Listening;
use crate::owned::Owned;
use crate::sampler::Sampler;
use crate::sequence::Sequence;
use crate::tokens::ids;
use crate::waiting;
use calls::{LocalServer, OpenOptions, ServerUsers};
use pyo3::exceptions::PyValueError;
use pyo3::types::PyBytes;
use pyo3::{Bound, PyErr, PyResult, Python, pyclass, pyfunction, pymethods};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use text::EncodeOptions;

/// Longest time that closing waits for the engine and for calls in other threads.
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// The names of the options of a model.
#[pyfunction]
pub(crate) fn engine_options() -> Vec<&'static str> {
    OpenOptions::keys().collect()
}

/// A loaded model with the routes of the server.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Server(Owned<Opened>);

/// A model, until it is closed, and what ends with it.
#[derive(Debug)]
struct Opened {
    server: Mutex<Option<LocalServer>>,
    users: Arc<ServerUsers>,
}

impl Server {
    /// The model.
    ///
    /// # Errors
    /// If it was closed.
    pub fn open(&self) -> PyResult<LocalServer> {
        self.0.get()?.server().ok_or_else(errors::stopped)
    }

    /// Calls `act` with the model, without the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&LocalServer) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        // The clone is dropped without the interpreter too: it may be the last.
        let server = self.open()?;
        py.detach(move || act(&server))
    }
}

impl Opened {
    fn server(&self) -> Option<LocalServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends everything and frees the memory. Whether it is free.
    fn close(&self) -> bool {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(server) = server else { return true };
        server.stop();
        self.users.end();
        let is_free = server.close(CLOSE_TIME);
        allocator::give_back();
        is_free
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A forked process does not come here, see `Owned`. Without an interpreter that can be
        // attached to, the process ends, and its memory with it.
        let _ = Python::try_attach(|py| py.detach(|| self.close()));
    }
}

#[pymethods]
impl Server {
    /// Loads a model with `options`, which are JSON.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        let options = OpenOptions::from_json(options.as_bytes());
        let options = options.map_err(|error| errors::of_call(&error))?;
        let (sender, loaded) = mpsc::channel();
        // Loading cannot be interrupted, but waiting for it: then its result is dropped there.
        let load = move || drop(sender.send(LocalServer::open(&options)));
        let thread = thread::Builder::new().name("gannet-load".into()).spawn(load);
        thread.map_err(|error| EngineError::new_err(format!("no thread to load with: {error}")))?;
        let server = waiting::wait(py, move |most| match loaded.recv_timeout(most) {
            Ok(opened) => opened.map(Some).map_err(|error| errors::of_open(&error)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(EngineError::new_err("loading the model panicked"))
            }
        })?;
        let opened = Opened { server: Mutex::new(Some(server)), users: Arc::default() };
        Ok(Self(Owned::new(opened)))
    }

    fn call(slf: Bound<'_, Self>, method: &str, path: &str, body: &[u8]) -> PyResult<Call> {
        let body = body.to_vec();
        let call = slf.get().with(slf.py(), |server| {
            server.call(method, path, body).map_err(|error| errors::of_call(&error))
        })?;
        Ok(Call::new(call, slf.unbind()))
    }

    fn sequence(&self, py: Python<'_>, options: &str) -> PyResult<Sequence> {
        let users = &self.0.get()?.users;
        self.with(py, |server| Sequence::new(options, server, users))
    }

    fn sampler(&self, py: Python<'_>, options: &str) -> PyResult<Sampler> {
        self.with(py, |server| {
            let service = server.engine().service();
            Sampler::new(options, &service.defaults, service.info().vocab_size)
        })
    }

    fn guide(&self, py: Python<'_>, source: &str) -> PyResult<Guide> {
        self.with(py, |server| Guide::new(source, server))
    }

    /// Serves the model over HTTP.
    fn listen(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<Listening> {
        let users = &self.0.get()?.users;
        self.with(py, |server| {
            Listening::new(server.engine().service().clone(), (host, port), users)
        })
    }

    /// Facts about the model, as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |server| {
            let engine = server.engine();
            let (info, memory) = (engine.info(), engine.memory());
            let facts = json!({
                "name": info.name,
                "architecture": info.architecture,
                "arithmetic": info.arithmetic,
                "context_length": info.context_length,
                "vocab_size": info.vocab_size,
                "hidden_size": info.hidden_size,
                "cache_tokens": info.cache_tokens,
                "parallel": engine.service().parallel,
                "threads": engine.threads(),
                "isa": engine.isa(),
                "memory": {
                    "weights": memory.weights,
                    "workspace": memory.workspace,
                    "cache": memory.cache,
                    "states": memory.states,
                },
                "warnings": engine.warnings(),
            });
            Ok(facts.to_string())
        })
    }

    fn encode(
        &self,
        py: Python<'_>,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let options = EncodeOptions { add_special, parse_special };
        self.with(py, |server| {
            let ids = server.engine().service().tokenizer().encode(text, options);
            ids.map_err(|error| PyValueError::new_err(error.to_string()))
        })
    }

    fn decode(&self, py: Python<'_>, tokens: &[u8], skip_special: bool) -> PyResult<String> {
        let tokens = ids(tokens)?;
        self.with(py, |server| {
            Ok(server.engine().service().tokenizer().decode(&tokens, skip_special))
        })
    }

    fn token_bytes<'py>(&self, py: Python<'py>, token: u32) -> PyResult<Bound<'py, PyBytes>> {
        let server = self.open()?;
        Ok(PyBytes::new(py, server.engine().service().tokenizer().token_bytes(token)))
    }

    fn is_special(&self, token: u32) -> PyResult<bool> {
        Ok(self.open()?.engine().service().tokenizer().is_special(token))
    }

    /// The tokens as the vocabulary writes them, with their ids.
    fn vocab(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        self.with(py, |server| {
            let tokenizer = server.engine().service().tokenizer();
            let all = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
            Ok(all.filter_map(|id| Some((tokenizer.id_to_token(id)?.to_owned(), id))).collect())
        })
    }

    fn vocab_size(&self) -> PyResult<usize> {
        Ok(self.open()?.engine().service().tokenizer().vocab_size())
    }

    /// The ids of the tokens with a role.
    fn special_ids(&self) -> PyResult<BTreeMap<&'static str, u32>> {
        let special = self.open()?.engine().service().tokenizer().special;
        let roles = [
            ("bos", special.bos),
            ("eos", special.eos),
            ("pad", special.pad),
            ("unk", special.unk),
        ];
        Ok(roles.into_iter().filter_map(|(role, id)| Some((role, id?))).collect())
    }

    fn is_alive(&self) -> PyResult<bool> {
        Ok(self.0.get()?.server().is_some_and(|server| server.is_alive()))
    }

    /// Ends the engine and frees its memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let opened = self.0.get()?;
        match py.detach(|| opened.close()) {
            true => Ok(()),
            false => Err(in_use()),
        }
    }
}

fn in_use() -> PyErr {
    let seconds = CLOSE_TIME.as_secs();
    EngineError::new_err(format!("the engine is still in use {seconds} s after it was closed"))
}
