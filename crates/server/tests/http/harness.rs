//! A server on a port of its own, and readers of its answers.

use crate::support::{Act, Report, Scripted, scripted_with_queue};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use server::{Listener, ServeError, ServedModels, ServerOptions, serve};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Most time that anything waited for may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Server {
    pub addr: SocketAddr,
    pub client: Client,
    scripted: Scripted,
    shutdown: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    /// A server whose engine plays `script` to every request.
    pub async fn start(script: impl Into<Vec<Act>>) -> Self {
        Self::start_with(script, 64, ServerOptions::default()).await
    }

    pub async fn start_with(
        script: impl Into<Vec<Act>>,
        queue: usize,
        options: ServerOptions,
    ) -> Self {
        Self::start_on(listener().into(), script, queue, options).await
    }

    pub async fn start_on(
        listener: Listener,
        script: impl Into<Vec<Act>>,
        queue: usize,
        options: ServerOptions,
    ) -> Self {
        Self::serve_on(listener, scripted_with_queue(script.into(), queue), options)
    }

    /// A server of this service.
    pub fn serve(scripted: Scripted, options: ServerOptions) -> Self {
        Self::serve_on(listener().into(), scripted, options)
    }

    /// A server of these models, one of which is `scripted`.
    pub fn serve_models(
        models: impl Into<ServedModels>,
        scripted: Scripted,
        options: ServerOptions,
    ) -> Self {
        Self::serve_models_on(listener().into(), models.into(), scripted, options)
    }

    fn serve_on(listener: Listener, scripted: Scripted, options: ServerOptions) -> Self {
        let models = scripted.service.clone().into();
        Self::serve_models_on(listener, models, scripted, options)
    }

    fn serve_models_on(
        listener: Listener,
        models: ServedModels,
        scripted: Scripted,
        options: ServerOptions,
    ) -> Self {
        let addr = listener.tcp_address().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let (shutdown, asked) = oneshot::channel::<()>();
        let asked = async {
            // A dropped sender is no wish to end.
            if asked.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let served = tokio::spawn(serve(listener, models, options, asked));
        Self { addr, client: Client::new(), scripted, shutdown: Some(shutdown), served }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub async fn get(&self, path: &str) -> Response {
        self.client.get(self.url(path)).send().await.unwrap()
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.client.post(self.url(path)).json(body).send().await.unwrap()
    }

    /// The members of `/v1/stats`.
    pub async fn stats(&self) -> Value {
        ok(self.get("/v1/stats?format=json").await).await
    }

    /// Waits until the engine computes a request.
    pub async fn computes(&self) {
        until("a request runs", async || self.stats().await["requests"]["running"] == 1).await;
    }

    /// The answer to a chat request, which must succeed.
    pub async fn chat(&self, extra: Value) -> Value {
        ok(self.post("/v1/chat/completions", &chat_body(extra)).await).await
    }

    /// The data of the events that answer a chat request.
    pub async fn chat_events(&self, mut extra: Value) -> Vec<Value> {
        extra["stream"] = true.into();
        events(self.post("/v1/chat/completions", &chat_body(extra)).await).await
    }

    /// What became of the next request that ends.
    pub async fn report(self) -> (Report, Self) {
        tokio::task::spawn_blocking(move || (self.scripted.report(), self)).await.unwrap()
    }

    pub fn no_report(&self) -> bool {
        self.scripted.reports.try_recv().is_err()
    }

    /// Asks the server to end.
    pub fn shut_down(&mut self) {
        self.shutdown.take().map(|ask| ask.send(()));
    }

    /// Waits until the server, asked to end, takes no more connections.
    pub async fn drains(&self) {
        until("no connection is taken", async || TcpStream::connect(self.addr).await.is_err())
            .await;
    }

    /// How the server ended.
    pub async fn ended(self) -> Result<(), ServeError> {
        tokio::time::timeout(PATIENCE, self.served).await.expect("the server ends").unwrap()
    }
}

/// Waits until `condition` holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

static ERRORS: Mutex<String> = Mutex::new(String::new());

/// Keeps the errors that are logged from now on, for [`error_names`].
pub fn keep_errors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR);
        log.with_ansi(false).with_writer(|| Errors).init();
    });
}

/// Waits until an error is logged that names the file `path`.
pub async fn error_names(path: &Path) {
    let name = path.display().to_string();
    until("an error names the file", async || ERRORS.lock().unwrap().contains(&name)).await;
}

struct Errors;

impl std::io::Write for Errors {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        *ERRORS.lock().unwrap() += &String::from_utf8_lossy(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A port whose connections hold little in the system's buffers, so that stalls show early.
pub fn listener() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket.listen(128).unwrap()
}

/// Sends `request` as it is, and reads until the server closes the connection.
pub async fn raw<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, request: &str) -> String {
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.expect("the server closes the connection");
    String::from_utf8(answer).unwrap()
}

/// A chat request with `extra` members.
pub fn chat_body(extra: Value) -> Value {
    let mut body = json!({"model": "any", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// The JSON of a successful response.
pub async fn ok(response: Response) -> Value {
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The error object of a response, which must have this status.
pub async fn error(response: Response, status: u16) -> Value {
    assert_eq!(response.status(), status);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: Value = response.json().await.unwrap();
    for member in ["message", "type", "param", "code"] {
        assert!(body["error"].get(member).is_some(), "{member} is missing in {body}");
    }
    body["error"].clone()
}

/// The data of all events of a stream, which must end with `[DONE]`.
pub async fn events(response: Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `value` without what differs between runs; those members must be as they should.
pub fn stable(mut value: Value, prefix: &str) -> Value {
    let object = value.as_object_mut().unwrap();
    let id = object.shift_remove("id").unwrap();
    assert!(id.as_str().unwrap().starts_with(prefix), "{id}");
    assert!(object.shift_remove("created").unwrap().as_u64().unwrap() > 1_700_000_000);
    let fingerprint = object.shift_remove("system_fingerprint").unwrap();
    assert!(fingerprint.as_str().unwrap().starts_with("fp_"));
    assert_eq!(object.shift_remove("model").unwrap(), "test/model");
    if let Some(timings) = object.shift_remove("timings") {
        assert!(timings["predicted_n"].is_u64(), "{timings}");
    }
    value
}
