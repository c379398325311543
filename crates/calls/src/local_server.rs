//! A loaded model with the routes of the server.
//!
//! Invariant: calls live on the threads of their server and end with it.

use crate::call::{BodyEnd, Call, SharedResponse};
use crate::chunks::{ChunkReader, Framing};
use crate::error::{CallError, OpenError};
use crate::locate::locate;
use crate::options::OpenOptions;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Uri, header};
use gannet::Engine;
use http_body_util::BodyExt;
use server::ServerOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Threads that run the routes of all calls, and as many that render and tokenize their prompts.
/// The engine has threads of its own.
const THREADS: usize = 2;
/// Longest time that a caller may leave its answer unread. Callers in process end their calls
/// themselves; a sequence that waits holds blocks that others may take.
const STALL: Duration = Duration::from_secs(24 * 3600);
/// Time between two looks at whether others still use the server.
const POLL: Duration = Duration::from_millis(1);

/// A loaded model with the routes of the server. Clones share it, and threads may use it at the
/// same time. The last clone ends its calls and frees the model.
#[derive(Clone, Debug)]
pub struct LocalServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    router: Router,
    engine: Engine,
    /// Whether nothing may be called any more.
    stopped: AtomicBool,
    /// Whether the threads of calls end: bodies may break off as if they were complete.
    closing: Arc<AtomicBool>,
    /// The threads of all calls; `None` once they are ended.
    runtime: Mutex<Option<Runtime>>,
}

impl LocalServer {
    /// Loads a model. A model on a hub is downloaded first.
    ///
    /// # Errors
    /// If the model is not found or cannot be loaded.
    pub fn open(options: &OpenOptions) -> Result<Self, OpenError> {
        let path = locate(&options.model, options.hub_endpoint.as_deref())?;
        let draft = options.draft_model.as_deref();
        let draft =
            draft.map(|model| locate(model, options.hub_endpoint.as_deref())).transpose()?;
        let builder = draft.into_iter().fold(options.builder(), gannet::Builder::draft_model);
        Self::over(builder.load(path)?)
    }

    /// Makes a server of a loaded model.
    ///
    /// # Errors
    /// If the system starts no threads.
    pub fn over(engine: Engine) -> Result<Self, OpenError> {
        let options = ServerOptions { stall_timeout: STALL, ..ServerOptions::default() };
        let router = server::router(engine.service().clone(), options);
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(THREADS).max_blocking_threads(THREADS);
        let runtime = runtime.thread_name("gannet-calls").enable_all().build();
        let runtime = Mutex::new(Some(runtime.map_err(OpenError::Threads)?));
        let (stopped, closing) = (AtomicBool::new(false), Arc::default());
        Ok(Self(Arc::new(Inner { router, engine, stopped, closing, runtime })))
    }

    /// Returns the engine. Its clones, and those of its service, must be dropped before
    /// [`close`](Self::close).
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Calls a route: `method` is GET, POST or DELETE, `path` that of the route with its query, and
    /// `body`, which is JSON, that of the request. Returns without waiting for the response.
    ///
    /// What is wrong with a request, its response says, as over HTTP.
    ///
    /// # Errors
    /// If the method or the path is none, or the engine has stopped.
    pub fn call(&self, method: &str, path: &str, body: Vec<u8>) -> Result<Call, CallError> {
        let request = request(method, path, body)?;
        let runtime = self.0.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = runtime.as_ref().filter(|_| !self.is_stopped()).ok_or(CallError::Stopped)?;
        let response = Arc::new(SharedResponse::new());
        let closing = Arc::clone(&self.0.closing);
        let writer = ResponseWriter { response: Arc::clone(&response), closing };
        let task = runtime.spawn(answer(self.0.router.clone(), request, writer));
        Ok(Call::new(response, task.abort_handle()))
    }

    /// Whether calls are answered: the engine's thread runs, and the server is not stopped.
    pub fn is_alive(&self) -> bool {
        !self.is_stopped() && self.0.engine.service().engine.is_alive()
    }

    /// Refuses all calls from now on. Calls that run continue.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Closes the server: refuses new calls, ends running ones, waits until all other clones of
    /// it are dropped, and until the engine has ended and its memory is free; in all not longer
    /// than `most`. Returns whether all that has happened; what is left happens with the last
    /// handle of the engine. Must not be called from async code.
    pub fn close(self, most: Duration) -> bool {
        self.stop();
        let started = Instant::now();
        let left = || most.saturating_sub(started.elapsed());
        if let Some(runtime) = self.0.take_runtime() {
            runtime.shutdown_timeout(left());
        }
        let mut shared = self.0;
        let inner = loop {
            match Arc::try_unwrap(shared) {
                Ok(inner) => break inner,
                Err(_) if left().is_zero() => return false,
                Err(others) => shared = others,
            }
            std::thread::sleep(POLL.min(left()));
        };
        let engine = inner.engine.clone();
        // With its router and its own handle of the engine.
        drop(inner);
        engine.finish(left())
    }
}

impl Inner {
    /// The threads of calls, which the caller ends.
    fn take_runtime(&self) -> Option<Runtime> {
        self.closing.store(true, Ordering::Release);
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A thread of the server itself may be the last that used it, and cannot wait for itself.
        if let Some(runtime) = self.take_runtime() {
            runtime.shutdown_background();
        }
    }
}

fn request(method: &str, path: &str, body: Vec<u8>) -> Result<Request<Body>, CallError> {
    let invalid =
        |field: &str, problem: String| CallError::Invalid { field: field.to_owned(), problem };
    let method = match method {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "DELETE" => Method::DELETE,
        other => {
            let problem = format!("expected GET, POST or DELETE, found {other:?}");
            return Err(invalid("method", problem));
        }
    };
    let uri = Some(path).filter(|path| path.starts_with('/'));
    let uri = uri.and_then(|path| path.parse::<Uri>().ok()).ok_or_else(|| {
        invalid("path", format!("expected that of a route, such as \"/v1/models\", found {path:?}"))
    })?;
    let is_post = method == Method::POST;
    let mut request = Request::new(Body::from(body));
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    if is_post {
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    Ok(request)
}

/// The response of a call as its task writes it. The response ends with it, however that happens:
/// as one that was stopped, unless it is complete by then.
#[derive(Debug)]
struct ResponseWriter {
    response: Arc<SharedResponse>,
    closing: Arc<AtomicBool>,
}

impl ResponseWriter {
    /// Ends a body that has no more data.
    fn complete(&self) {
        if !self.closing.load(Ordering::Acquire) {
            self.response.end(BodyEnd::Complete);
        }
    }
}

impl Drop for ResponseWriter {
    fn drop(&mut self) {
        self.response.end(BodyEnd::Stopped);
    }
}

/// Writes the response of the routes to `request`.
async fn answer(router: Router, request: Request<Body>, writer: ResponseWriter) {
    let Ok(response) = router.oneshot(request).await;
    let (head, mut body) = response.into_parts();
    let framing = Framing::of(&head.headers);
    writer.response.begin(head.status.as_u16(), framing.is_some());
    let mut reader = framing.map(ChunkReader::new);
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        // Bodies of the routes do not break off.
        let Ok(frame) = frame else { return };
        let data: Bytes = frame.into_data().unwrap_or_default();
        match &mut reader {
            None => whole.extend_from_slice(&data),
            Some(reader) => {
                for chunk in reader.push(&data) {
                    writer.response.push(chunk).await;
                }
            }
        }
    }
    let last = reader.map_or(Some(whole), ChunkReader::finish);
    if let Some(chunk) = last {
        writer.response.push(chunk).await;
    }
    writer.complete();
}
