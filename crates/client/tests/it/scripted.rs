//! Servers that send what a test says, and report what they received.

use client::{ChatEvent, ChatQuery, ChatStream, ClientError, RemoteServer, Wait};
use serde_json::json;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// A key that no message may contain.
pub const KEY: &str = "sk-0123456789abcdef";
/// The head of a stream that ends with its connection.
pub const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
/// Longer than any test takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a server does after it has read a request.
#[derive(Clone, Debug)]
pub enum ServerAct {
    Send(Vec<u8>),
    Pause(Duration),
    /// Stays silent until the client closes the connection, which is reported.
    Stay,
}

/// A server that does the same for each connection.
pub struct ScriptedServer {
    pub url: String,
    /// Requests as they were received, and `closed` for each connection that the client closed.
    pub reports: Receiver<String>,
    _thread: JoinHandle<()>,
}

impl ScriptedServer {
    pub fn new(acts: Vec<ServerAct>) -> Self {
        let (ready, url) = channel();
        let (sender, reports) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(format!("http://{}", listener.local_addr().unwrap())).unwrap();
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    if !serve(&mut socket, &acts, &|report| sender.send(report).is_ok()).await {
                        return;
                    }
                }
            });
        });
        Self { url: url.recv().unwrap(), reports, _thread: thread }
    }

    /// A server that sends these bytes and closes the connection.
    pub fn sending(answer: impl AsRef<[u8]>) -> Self {
        Self::new(vec![ServerAct::Send(answer.as_ref().to_vec())])
    }

    /// A server that sends a whole response of these parts.
    pub fn answering(status: &str, content_type: &str, body: &str) -> Self {
        let length = body.len();
        Self::sending(format!(
            "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n\
             content-length: {length}\r\n\r\n{body}"
        ))
    }

    pub fn client(&self) -> RemoteServer {
        RemoteServer::new(&self.url, Some(KEY)).unwrap()
    }

    pub fn chat(&self, wait: Wait<'_>) -> Result<ChatStream, ClientError> {
        self.client().chat(&query(), wait)
    }

    /// All events of an answer, and its error.
    pub fn events(&self) -> (Vec<ChatEvent>, Option<ClientError>) {
        match self.chat(Wait::at_most(PATIENCE)) {
            Ok(stream) => drain(stream, Wait::at_most(PATIENCE)),
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    pub fn report(&self) -> Result<String, RecvTimeoutError> {
        self.reports.recv_timeout(PATIENCE)
    }
}

pub fn drain(mut stream: ChatStream, wait: Wait<'_>) -> (Vec<ChatEvent>, Option<ClientError>) {
    let mut events = Vec::new();
    loop {
        match stream.next(wait) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

pub fn query() -> ChatQuery {
    ChatQuery {
        model: "m".into(),
        messages: vec![json!({"role": "user", "content": "hello"})],
        ..ChatQuery::default()
    }
}

/// Reads a request and acts. Returns whether the test still listens.
pub async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut T,
    acts: &[ServerAct],
    report: &dyn Fn(String) -> bool,
) -> bool {
    let mut open = report(request(socket).await);
    for act in acts {
        match act {
            // A client that has read enough closes the connection.
            ServerAct::Send(bytes) => drop(socket.write_all(bytes).await),
            ServerAct::Pause(time) => tokio::time::sleep(*time).await,
            ServerAct::Stay => {
                let mut rest = Vec::new();
                drop(socket.read_to_end(&mut rest).await);
                open = report("closed".to_owned());
            }
        }
    }
    drop(socket.shutdown().await);
    open
}

/// The head and the body of a request.
async fn request<T: AsyncRead + Unpin>(socket: &mut T) -> String {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = socket.read(&mut piece).await.unwrap_or(0);
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if count == 0 {
                return text.into_owned();
            }
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        if count == 0 || body.len() >= length {
            return text.into_owned();
        }
    }
}
