//! A scripted server of HTTP on loopback: one request per connection.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as a script sees it.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The method of HTTP.
    pub method: String,
    /// The fields of the head, with names in lower case.
    pub headers: HashMap<String, String>,
    /// The message.
    pub body: Value,
}

impl WebRequest {
    /// A field of the head.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The method of the message.
    pub fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// What a script answers: it writes to the connection, and may keep it.
type Script = dyn Fn(&WebRequest, &mut TcpStream) + Send + Sync;

/// A server, whose threads last until the test's process ends.
pub struct WebServer {
    /// Its address.
    pub url: String,
    /// The requests so far.
    pub requests: Arc<Mutex<Vec<WebRequest>>>,
}

impl WebServer {
    /// Starts a server.
    pub fn start(script: impl Fn(&WebRequest, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp?x=1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    if let Some(request) = read_request(&stream) {
                        seen.lock().unwrap().push(request.clone());
                        script(&request, &mut stream);
                    }
                });
            }
        });
        Self { url, requests }
    }

    /// The methods of the messages so far.
    pub fn methods(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| request.rpc().to_owned()).collect()
    }
}

fn read_request(stream: &TcpStream) -> Option<WebRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    assert!(line.ends_with(" /mcp?x=1 HTTP/1.1\r\n"), "{line}");
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(WebRequest { method, headers, body })
}

/// Writes a response.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

/// Writes a message as JSON.
pub fn respond_json(stream: &mut TcpStream, status: &str, message: &Value) {
    let kind = "content-type: application/json; charset=utf-8\r\n";
    respond(stream, status, kind, message.to_string().as_bytes());
}

/// Begins a stream of events, which ends with the connection.
pub fn begin_stream(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes());
}

/// Writes an event.
pub fn event(stream: &mut TcpStream, message: &Value) {
    let _ = stream.write_all(format!("event: message\ndata: {message}\n\n").as_bytes());
}

/// The answer to a request.
pub fn result(request: &WebRequest, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result})
}

/// The error that answers a request.
pub fn error(request: &WebRequest, code: i64) -> Value {
    let error = json!({"code": code, "message": "refused\u{1b}"});
    json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error})
}
