//! `serve` over real HTTP, from start to end.

#![cfg(unix)]

use crate::gannet::{check_error, command, run};
use kernels::{ISA_VARIABLE, Isa};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

/// A server with `args`, of the built-in model if they name none.
pub struct Server {
    child: Child,
    pub address: String,
    err: BufReader<ChildStderr>,
    /// What it said until it listened.
    log: String,
}

impl Server {
    pub fn start(args: &[&str]) -> Self {
        Self::start_anywhere(&[&["--port", "0"], args].concat())
    }

    /// As [`start`](Self::start), listening where `args` say.
    pub fn start_anywhere(args: &[&str]) -> Self {
        Self::run(command(), args)
    }

    /// As [`start`](Self::start), computing with an instruction set.
    pub fn start_with(isa: Isa, args: &[&str]) -> Self {
        let mut command = command();
        command.env(ISA_VARIABLE, isa.name());
        Self::run(command, &[&["--port", "0"], args].concat())
    }

    /// As [`start_anywhere`](Self::start_anywhere), by this command.
    pub fn run(mut command: Command, args: &[&str]) -> Self {
        command.arg("serve").args(args).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, address: String::new(), err, log: String::new() };
        while server.address.is_empty() {
            let mut line = String::new();
            assert_ne!(server.err.read_line(&mut line).unwrap(), 0, "it ended before it listened");
            let said = line.split_once("listening on ").map(|(_, said)| said);
            let address = said.and_then(|said| said.split(['"', '\n']).next()).unwrap_or_default();
            server.address.push_str(address.trim_start_matches("http://"));
            server.log += &line;
        }
        server
    }

    pub fn request(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        // At once: a server that refuses the head may close before it has read a later body.
        let request = format!(
            "{head} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Such a server resets the connection, which may end the answer early.
        match stream.read_to_end(&mut answer).map_err(|error| error.kind()) {
            Ok(_) | Err(ErrorKind::ConnectionReset) => String::from_utf8(answer).unwrap(),
            Err(other) => panic!("{other}"),
        }
    }

    /// The JSON that a request is answered with.
    pub fn answer(&self, head: &str, body: &Value) -> Value {
        let answer = self.request(head, &body.to_string());
        let (_, json) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(json).unwrap_or_else(|_| panic!("{answer}"))
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// The other end of its standard input, if that is a pipe.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub fn end(self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        self.end_by_itself()
    }

    /// Waits for its end.
    pub fn end_by_itself(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut log = std::mem::take(&mut self.log);
        self.err.read_to_string(&mut log).unwrap();
        (code, log)
    }
}

/// A test that fails leaves no server behind.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const QUESTION: &str =
    r#"{"messages": [{"role": "user", "content": "What is the capital of France?"}]}"#;

#[test]
fn it_answers_and_ends_with_zero_on_sigterm() {
    let server = Server::start(&[]);
    assert!(server.request("GET /health", "").starts_with("HTTP/1.1 200"));
    let answer = server.request("POST /v1/chat/completions", QUESTION);
    assert!(answer.contains("Paris"), "{answer}");
    assert!(server.request("GET /v1/models", "").contains("gannet-tiny"));
    let (code, rest) = server.end("-TERM");
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn the_log_says_where_a_prompt_leaves_the_one_before() {
    let server = Server::start(&["-vv", "--log-prompts", "--log-format", "json"]);
    for time in ["12:01", "12:02"] {
        let system = json!({"role": "system", "content": format!("Be kind. It is {time} now.")});
        let user = json!({"role": "user", "content": "What is the capital of France?"});
        let body = json!({"messages": [system, user], "max_tokens": 2});
        server.answer("POST /v1/chat/completions", &body);
    }
    let (_, log) = server.end("-TERM");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.filter(|line| line["message"] == "cache").collect();
    assert_eq!(lines[0]["cause"], "first-prompt", "{log}");
    let second = &lines[1];
    let found = second["found"].as_u64().unwrap();
    assert!(found > 0 && found < second["looked_up"].as_u64().unwrap(), "{second}");
    assert_eq!([&second["cause"], &second["role"]], ["unknown-prefix", "system"], "{second}");
    assert_eq!(second["message_index"], 0, "{second}");
    let text = |name: &str| second[name].as_str().unwrap();
    assert!(text("before").ends_with("It is 12:0"), "{second}");
    assert!(text("earlier").starts_with("1 now.") && text("now").starts_with("2 now."), "{second}");
}

#[test]
fn every_log_line_is_json_and_reports_of_one_request_share_its_name() {
    let server = Server::start(&["-v", "--log-format", "json"]);
    // The last header takes the rest of the line that such a head begins.
    let head = "POST /v1/chat/completions HTTP/1.1\r\nx-request-id: trace-1\r\nx-rest:";
    let answer = server.request(head, QUESTION);
    assert!(answer.contains("x-request-id: trace-1\r\n"), "{answer}");
    let (_, rest) = server.end("-TERM");
    let json = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"));
    let all: Vec<Value> = rest.lines().map(json).collect();
    for said in ["listening on ", "loaded in ", "shutting down"] {
        let says = |line: &Value| line["message"].as_str().is_some_and(|it| it.contains(said));
        assert!(all.iter().any(says), "{said}: {rest}");
    }
    let lines: Vec<Value> =
        all.into_iter().filter(|line| line["request_id"] == "trace-1").collect();
    let with = |message: &str| lines.iter().find(|line| line["message"] == message).unwrap();
    assert_eq!(with("request")["status"], 200, "{rest}");
    assert_eq!(with("generation")["outcome"], "answered", "{rest}");
    assert_eq!(with("generation")["finish"], "stop", "{rest}");
    assert_eq!(lines.len(), 2, "{rest}");
}

#[test]
fn ctrl_c_ends_it_with_130() {
    let (code, rest) = Server::start(&[]).end("-INT");
    assert_eq!(code, Some(130), "{rest}");
    assert!(!rest.contains("error"), "{rest}");
}

#[test]
fn a_key_keeps_strangers_out() {
    let server = Server::start(&["--api-key", "secret"]);
    let answer = server.request("POST /v1/chat/completions", QUESTION);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let (_, rest) = server.end("-TERM");
    assert!(!rest.contains("secret"), "{rest}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    check_error(&run(&["serve", "--port", &port]), &format!("127.0.0.1:{port}"));
    server.end("-TERM");
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    let server = Server::start(&["--request-timeout", "0.000001"]);
    let answer = server.request("POST /v1/chat/completions", QUESTION);
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("request_timeout"), "{answer}");
    server.end("-TERM");
}

#[test]
fn what_was_computed_before_is_not_computed_again() {
    let server = Server::start(&["--kv-block", "16"]);
    let prompt: Vec<usize> = (0..64).map(|id| 100 + id).collect();
    let body = json!({ "prompt": prompt, "max_tokens": 3, "ignore_eos": true, "temperature": 0 });
    let cached = || {
        let answer = server.answer("POST /v1/completions", &body);
        (
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone(),
            answer["choices"].clone(),
        )
    };
    let ((cold, first), (warm, second)) = (cached(), cached());
    assert_eq!((cold, warm), (json!(0), json!(63)));
    assert_eq!(first, second);
    server.end("-TERM");
}

/// A template that opens the reasoning of an answer and drops that of earlier turns.
const DROPS_REASONING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}";

/// Rows with windows, states, and rows that an index chooses: what a prefix cannot be cut from at
/// any position.
#[test]
fn a_turn_with_dropped_reasoning_computes_its_own_tokens_only() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("drops.jinja");
    std::fs::write(&template, DROPS_REASONING).unwrap();
    let template = template.to_str().unwrap();
    let of_deepseek =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../formats/src/families/deepseek_v4.jinja");
    for (shape, template) in
        [("tiny-deepseek-v4", of_deepseek), ("tiny-qwen3.5", template), ("tiny-gpt-oss", template)]
    {
        let model = folder.path().join(format!("{shape}.gguf"));
        let model = model.to_str().unwrap();
        assert_eq!(run(&["synth", shape, "-o", model, "--type", "q8_0"]).code, Some(0));
        let server = Server::start(&["-m", model, "--ctx", "2048", "--chat-template", template]);
        let question = "How many sides has a triangle, and why? ".repeat(12);
        let mut messages = vec![json!({ "role": "user", "content": question })];
        let chat = |messages: &[Value]| {
            let body = json!({
                "messages": messages, "max_tokens": 40, "ignore_eos": true, "seed": 1,
                "reasoning_effort": "high"
            });
            server.answer("POST /v1/chat/completions", &body)
        };
        let first = prompt_tokens(&server, &messages);
        let message = &chat(&messages)["choices"][0]["message"];
        let reasoning = message["reasoning_content"].as_str();
        let reasoning = reasoning.unwrap_or_else(|| panic!("{shape}: no reasoning: {message}"));
        messages.push(json!({
            "role": "assistant", "reasoning_content": reasoning, "content": "Three."
        }));
        messages.push(json!({ "role": "user", "content": "And a square?" }));
        let second = prompt_tokens(&server, &messages);
        let shared = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
        assert!(shared < first.len(), "{shape}: the prompt opens the reasoning");
        let usage = &chat(&messages)["usage"];
        assert_eq!(usage["prompt_tokens"], second.len(), "{shape}");
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], shared, "{shape}");
        server.end("-TERM");
    }
}

/// The tokens of the prompt of a conversation.
fn prompt_tokens(server: &Server, messages: &[Value]) -> Vec<Value> {
    let body = json!({ "messages": messages, "reasoning_effort": "high" });
    let prompt = server.answer("POST /apply-template", &body);
    let body = json!({ "content": prompt["prompt"], "parse_special": true });
    server.answer("POST /tokenize", &body)["tokens"].as_array().unwrap().clone()
}
