//! A server of OpenAI's protocol that plays the model.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Serves until the process ends; gives the address.
pub fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("its address"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    url
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    while input.read_line(&mut head).ok()? > 2 {
        let last = head.lines().last()?.to_ascii_lowercase();
        if let Some(value) = last.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    if head.starts_with("GET") {
        let list = json!({"data": [{"id": "m", "context_length": 65536}]}).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        return write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{list}", list.len()).ok();
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    let request: Value = serde_json::from_slice(&body).ok()?;
    let messages = request["messages"].as_array()?;
    let prompt = messages.iter().rfind(|it| it["role"] == "user")?["content"].as_str()?;
    let is_first = messages.last()?["role"] == "user";
    if prompt.ends_with("slow") {
        // Until the agent closes the connection.
        return input.read_to_end(&mut Vec::new()).ok().map(drop);
    }
    if prompt.ends_with("change it") && is_first {
        let arguments = json!({"path": "a.txt", "old": "two", "lines": null, "new": "2"});
        let function = json!({"name": "edit", "arguments": arguments.to_string()});
        let call = json!({"index": 0, "id": "1", "type": "function", "function": function});
        send(&mut stream, json!({"reasoning_content": "hm"}), Value::Null)?;
        send(&mut stream, json!({"content": "I change it."}), Value::Null)?;
        send(&mut stream, json!({"tool_calls": [call]}), Value::Null)?;
        send(&mut stream, json!({}), "tool_calls".into())?;
    } else {
        send(&mut stream, json!({"content": "done"}), Value::Null)?;
        send(&mut stream, json!({}), "stop".into())?;
    }
    stream.write_all(b"data: [DONE]\n\n").ok()
}

fn send(stream: &mut TcpStream, delta: Value, finish: Value) -> Option<()> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    write!(stream, "data: {}\n\n", json!({"choices": [choice]})).ok()
}
