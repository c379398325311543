//! A model that is served over HTTP.

use crate::errors::EngineError;
use crate::owned::Owned;
use api::Service;
use calls::{ServerUser, ServerUsers};
use pyo3::exceptions::PyOSError;
use pyo3::{PyErr, PyResult, Python, pyclass, pymethods};
use server::ServerOptions;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Threads of a server.
const THREADS: usize = 2;
/// Time that running requests get to end.
const GRACE: Duration = Duration::from_secs(5);
/// Time for the rest of the tasks after that.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// A server that listens.
#[pyclass(frozen, module = "gannet._gannet")]
#[derive(Debug)]
pub(crate) struct Listening {
    server: Owned<Arc<RunningServer>>,
    address: SocketAddr,
}

/// A server, until it is ended.
#[derive(Debug)]
struct RunningServer(Mutex<Option<Parts>>);

#[derive(Debug)]
struct Parts {
    runtime: Runtime,
    shutdown: oneshot::Sender<()>,
    ended: std::sync::mpsc::Receiver<()>,
}

impl ServerUser for RunningServer {
    fn end(&self) {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Parts { runtime, shutdown, ended }) = parts else { return };
        // Without a receiver the server has ended by itself.
        let _ = shutdown.send(());
        let _ = ended.recv_timeout(GRACE + SHUTDOWN_TIME);
        runtime.shutdown_timeout(SHUTDOWN_TIME);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Listening {
    /// Serves `service` at an address.
    pub fn new(service: Service, (host, port): (&str, u16), users: &ServerUsers) -> PyResult<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("gannet-http").enable_all();
        let runtime = runtime.build().map_err(|error| {
            EngineError::new_err(format!("cannot start the threads of the server: {error}"))
        })?;
        let failed = |error| -> PyErr {
            PyOSError::new_err(format!("cannot listen on {host} port {port}: {error}"))
        };
        let listener = runtime.block_on(TcpListener::bind((host, port))).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (shutdown, asked) = oneshot::channel();
        let (tell, ended) = std::sync::mpsc::channel();
        let options = ServerOptions { grace: GRACE, ..ServerOptions::default() };
        runtime.spawn(async move {
            // A sender that is dropped asks for the same.
            let shutdown = async move { drop(asked.await) };
            // Calls report an engine that has ended.
            let _ = server::serve(listener, service, options, shutdown).await;
            let _ = tell.send(());
        });
        let parts = Parts { runtime, shutdown, ended };
        let server = Arc::new(RunningServer(Mutex::new(Some(parts))));
        let user: Weak<RunningServer> = Arc::downgrade(&server);
        // One that comes after the end of the model ends at once.
        if !users.add(user) {
            server.end();
        }
        Ok(Self { server: Owned::new(server), address })
    }
}

#[pymethods]
impl Listening {
    /// The address and the port.
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let server = self.server.get()?;
        py.detach(|| server.end());
        Ok(())
    }
}
