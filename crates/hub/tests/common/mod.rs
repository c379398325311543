//! A small hub on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
}

/// What to send back. The body is cut after `cut` bytes, then the connection closed.
#[derive(Clone, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub cut: Option<usize>,
}

impl Answer {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

/// Serves until the process ends; every request is remembered.
pub struct Server {
    pub url: String,
    pub log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (answer, requests) = (Arc::new(answer), log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, requests) = (answer.clone(), requests.clone());
                std::thread::spawn(move || {
                    let _ = serve(stream.unwrap(), &*answer, &requests);
                });
            }
        });
        Self { url, log }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&Request) -> Answer,
    log: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = HashMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let request = Request { method, path, headers };
    log.lock().unwrap().push(request.clone());
    send(&mut stream, &request, answer(&request))
}

fn send(stream: &mut TcpStream, request: &Request, answer: Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    let (mut from, mut status_body) = (0, answer.body.as_slice());
    let range = request.headers.get("range").filter(|_| answer.status == 200);
    if let Some(range) = range {
        from = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap();
        let all = answer.body.len();
        head = head.replace("200 X", "206 Partial");
        head += &format!("Content-Range: bytes {from}-{}/{all}\r\n", all - 1);
    }
    status_body = &status_body[from..];
    head += &format!("Content-Length: {}\r\n", status_body.len());
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if request.method != "HEAD" {
        let end = answer.cut.unwrap_or(usize::MAX).min(status_body.len());
        stream.write_all(&status_body[..end])?;
    }
    Ok(())
}

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The listing of a repository.
pub fn listing(files: &[&str]) -> Answer {
    let siblings: Vec<_> = files.iter().map(|f| serde_json::json!({"rfilename": f})).collect();
    Answer::ok(serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string())
}

/// A repository `o/m` of small files, all under their SHA-256.
pub fn repository(files: Vec<(&'static str, Vec<u8>)>) -> impl Fn(&Request) -> Answer {
    move |request| {
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        if request.path == "/api/models/o/m/revision/main" {
            return listing(&names);
        }
        let prefix = format!("/o/m/resolve/{COMMIT}/");
        let file = request.path.strip_prefix(&prefix);
        match files.iter().find(|(name, _)| Some(*name) == file) {
            Some((_, body)) => {
                Answer::ok(body.clone()).header("ETag", format!("\"{}\"", sha256(body)))
            }
            None => Answer::status(404),
        }
    }
}
