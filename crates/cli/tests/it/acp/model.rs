//! A server of OpenAI's protocol whose answers a test writes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A step of an answer.
pub enum Step {
    /// A part of the answer, as `delta`.
    Delta(Value),
    /// The end, with why.
    Finish(&'static str),
    /// Waits for this signal.
    Wait(Arc<Mutex<Receiver<()>>>),
    /// Waits until the client closes the connection.
    Stay,
}

/// A model: the answer to the messages of a request.
pub struct ModelServer {
    /// The address.
    pub url: String,
    /// The messages of each request.
    pub requests: Receiver<Vec<Value>>,
}

impl ModelServer {
    /// A server whose model answers as `answer` says.
    pub fn new(answer: impl Fn(&[Value]) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, sender) = (Arc::clone(&answer), sender.clone());
                std::thread::spawn(move || {
                    serve(stream.unwrap(), &*answer, &|messages| drop(sender.send(messages)));
                });
            }
        });
        Self { url, requests }
    }

    /// A model that makes these answers one after the other; which one is next follows from the
    /// number of answers before, so that it is the same in all sessions.
    pub fn of(answers: impl Fn() -> Vec<Vec<Step>> + Send + Sync + 'static) -> Self {
        Self::new(move |messages| {
            let before = messages.iter().filter(|it| it["role"] == "assistant").count();
            answers().into_iter().nth(before).unwrap_or_else(|| text("nothing more"))
        })
    }

    /// The messages of the next request.
    pub fn request(&self) -> Vec<Value> {
        self.requests.recv_timeout(PATIENCE).expect("a request")
    }
}

/// An answer of text.
pub fn text(text: &str) -> Vec<Step> {
    vec![Step::Delta(json!({"content": text})), Step::Finish("stop")]
}

/// An answer that calls a tool.
pub fn call(id: &str, tool: &str, arguments: &Value) -> Vec<Step> {
    vec![called(id, tool, arguments), Step::Finish("tool_calls")]
}

/// The part of an answer that calls a tool.
pub fn called(id: &str, tool: &str, arguments: &Value) -> Step {
    let function = json!({"name": tool, "arguments": arguments.to_string()});
    let call = json!({"index": 0, "id": id, "type": "function", "function": function});
    Step::Delta(json!({"tool_calls": [call]}))
}

fn serve(stream: TcpStream, answer: &dyn Fn(&[Value]) -> Vec<Step>, report: &dyn Fn(Vec<Value>)) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    while input.read_line(&mut head).unwrap_or(0) > 2 {
        let last = head.lines().last().unwrap_or_default().to_ascii_lowercase();
        if let Some(value) = last.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    if input.read_exact(&mut body).is_err() {
        return;
    }
    let mut output = stream;
    if head.starts_with("GET") {
        let list = json!({"object": "list", "data": [{"id": "m", "context_length": 65536}]});
        let list = list.to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        // A client that has ended closes the connection, here as below.
        let _ = write!(output, "{head}\r\ncontent-length: {}\r\n\r\n{list}", list.len());
        return;
    }
    let request: Value = serde_json::from_slice(&body).unwrap();
    let messages = request["messages"].as_array().unwrap().clone();
    let steps = answer(&messages);
    report(messages);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = output.write_all(head.as_bytes());
    for step in steps {
        let chunk = |delta: Value, finish: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            format!("data: {}\n\n", json!({"choices": [choice]}))
        };
        let sent = match step {
            Step::Delta(delta) => chunk(delta, Value::Null),
            Step::Finish(why) => format!("{}data: [DONE]\n\n", chunk(json!({}), why.into())),
            Step::Wait(signal) => {
                let _ = signal.lock().unwrap().recv_timeout(PATIENCE);
                String::new()
            }
            Step::Stay => {
                let _ = input.read_to_end(&mut Vec::new());
                return;
            }
        };
        let _ = output.write_all(sent.as_bytes()).and_then(|()| output.flush());
    }
}
