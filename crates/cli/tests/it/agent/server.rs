//! A server with OpenAI's protocol on loopback, whose answers a test writes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The model that the server lists.
pub const MODEL: &str = "scripted";
/// The head of a streamed answer, which ends with its connection.
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// What the server sends in answer to a request for a chat completion.
#[derive(Clone, Debug, Default)]
pub struct ServerAnswer {
    bytes: Vec<u8>,
    /// Whether the server then waits until the client closes the connection.
    stays: bool,
}

impl ServerAnswer {
    /// These bytes.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), stays: false }
    }

    /// A stream that begins with these events, as text.
    pub fn beginning(events: &str) -> Self {
        Self::raw(format!("{STREAM}{events}"))
    }

    /// The text, in pieces of a few characters.
    pub fn text(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let pieces = chars.chunks(5).map(String::from_iter);
        Self::whole(pieces.map(|it| json!({"content": it})).collect(), "stop")
    }

    /// Reasoning, and then the text.
    pub fn reasoning(reasoning: &str, text: &str) -> Self {
        let deltas = vec![json!({"reasoning_content": reasoning}), json!({"content": text})];
        Self::whole(deltas, "stop")
    }

    /// Calls, each as its id, tool and arguments.
    pub fn calls(calls: &[(&str, &str, Value)]) -> Self {
        Self::of_calls(calls.iter().map(|(id, tool, arguments)| {
            json!({"id": id, "function": {"name": tool, "arguments": arguments.to_string()}})
        }))
    }

    /// Calls in the form of OpenAI's API, without their indices.
    pub fn of_calls(calls: impl IntoIterator<Item = Value>) -> Self {
        let delta = |(index, mut call): (usize, Value)| {
            call["index"] = index.into();
            json!({"tool_calls": [call]})
        };
        Self::whole(calls.into_iter().enumerate().map(delta).collect(), "tool_calls")
    }

    /// A whole answer of these deltas.
    pub fn whole(deltas: Vec<Value>, finish: &str) -> Self {
        let details = json!({"cached_tokens": 3});
        let usage = event(&json!({"choices": [], "usage": {
            "prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": details,
        }}));
        let events: String = deltas.iter().map(delta).collect();
        Self::beginning(&format!("{events}{}{usage}data: [DONE]\n\n", finished(finish)))
    }

    /// A response that is no stream.
    pub fn status(status: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close");
        Self::raw(format!("{head}\r\ncontent-type: application/json\r\n\r\n{body}"))
    }

    /// The same, after which the server waits until the client closes the connection.
    pub fn held(self) -> Self {
        Self { stays: true, ..self }
    }
}

/// An event of a stream with one delta.
pub fn delta(delta: &Value) -> String {
    event(&json!({"choices": [{"index": 0, "delta": delta}]}))
}

/// The event that ends an answer.
pub fn finished(reason: &str) -> String {
    event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// What the server answers to the body of a request.
type Plan = dyn Fn(&Value) -> ServerAnswer + Send + Sync;

/// A server that answers as a plan says and keeps what it receives.
pub struct ChatServer {
    pub url: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: String,
}

impl ReceivedRequest {
    /// The messages of a chat; none of another request.
    pub fn messages(&self) -> Vec<Value> {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["messages"].as_array().cloned().unwrap_or_default()
    }
}

impl ChatServer {
    /// A server whose context has so many tokens.
    pub fn new(
        context: usize,
        plan: impl Fn(&Value) -> ServerAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (kept, plan): (_, Arc<Plan>) = (Arc::clone(&received), Arc::new(plan));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (kept, plan) = (Arc::clone(&kept), Arc::clone(&plan));
                std::thread::spawn(move || serve(socket, context, &kept, &*plan));
            }
        });
        Self { url, received }
    }

    /// A server that gives these answers by the number of answers that a conversation has, so that
    /// what comes next follows from the messages alone.
    pub fn scripted(script: Vec<ServerAnswer>) -> Self {
        Self::new(100_000, move |body| {
            let answer = script.get(answers(body)).cloned();
            answer.unwrap_or_else(|| ServerAnswer::status("500 None", "the script has ended"))
        })
    }

    /// The requests for answers so far.
    pub fn chats(&self) -> Vec<ReceivedRequest> {
        let mut all = self.received.lock().unwrap().clone();
        all.retain(|request| request.head.starts_with("POST /v1/chat/completions "));
        all
    }

    /// All that was received, as text.
    pub fn text(&self) -> String {
        let all = self.received.lock().unwrap();
        all.iter().map(|request| format!("{}\n{}\n", request.head, request.body)).collect()
    }

    /// The results of calls that the last request has, in order.
    pub fn results(&self) -> Vec<String> {
        let messages = self.chats().last().map(ReceivedRequest::messages).unwrap_or_default();
        let results = messages.iter().filter(|it| it["role"] == "tool");
        results.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// The number of answers that the conversation of a request has.
pub fn answers(body: &Value) -> usize {
    let messages = body["messages"].as_array();
    messages.into_iter().flatten().filter(|it| it["role"] == "assistant").count()
}

/// Answers the request of a connection.
fn serve(
    mut socket: TcpStream,
    context: usize,
    received: &Mutex<Vec<ReceivedRequest>>,
    plan: &Plan,
) {
    let Some(request) = read(&socket) else { return };
    let is_list = request.head.starts_with("GET /v1/models ");
    let body = serde_json::from_str(&request.body).unwrap_or_default();
    received.lock().unwrap().push(request);
    let answer = match is_list {
        true => {
            let models = json!({"data": [{"id": MODEL, "context_length": context}]});
            ServerAnswer::status("200 OK", &models.to_string())
        }
        false => plan(&body),
    };
    // A client that has ended closes the connection.
    let _ = socket.write_all(&answer.bytes);
    if answer.stays {
        let _ = socket.read_to_end(&mut Vec::new());
    }
}

/// The head and the body of a request; `None` of a connection that ends before it.
fn read(socket: &TcpStream) -> Option<ReceivedRequest> {
    let (mut reader, mut head) = (BufReader::new(socket), String::new());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    let length = head.lines().find(is_length).map_or("0", |line| &line[15..]);
    let mut body = vec![0; length.trim().parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest { head, body: String::from_utf8_lossy(&body).into_owned() })
}
