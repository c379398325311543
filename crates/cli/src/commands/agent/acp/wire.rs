//! Messages of the client: JSON-RPC 2.0, one message a line.
//!
//! Invariant: a line of any bytes and any length is a message or an error, and takes bounded
//! memory.

use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Read, stdin};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Most bytes of a line: prompts hold files.
const MAX_LINE: usize = 16 << 20;
/// Most messages that wait to be taken.
const MAX_WAITING: usize = 16;

/// A message of the client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AcpMessage {
    /// It is to be answered.
    Request { id: Value, method: String, params: Value },
    /// It has no answer.
    Notification { method: String, params: Value },
    /// The answer to a request of the agent; `None` where it is an error.
    Answer { id: Value, result: Option<Value> },
    /// The line is no message.
    Malformed { id: Value, error: AcpError },
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcpError {
    code: i32,
    message: String,
}

impl AcpError {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The line is no JSON.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(-32700, message)
    }

    /// It is no request, or not one for now.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    /// There is no such method.
    pub fn no_method(method: &str) -> Self {
        Self::new(-32601, format!("there is no method {method:?}"))
    }

    /// The parameters are wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// The agent has failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    /// There is no such session.
    pub fn no_session(id: &str) -> Self {
        Self::new(-32002, format!("there is no session {id:?}"))
    }

    /// The error as a member of an answer.
    pub fn to_json(&self) -> Value {
        json!({"code": self.code, "message": self.message})
    }
}

/// Starts to read standard input; the receiver is disconnected at its end.
///
/// # Errors
///
/// If the system gives no thread.
pub(super) fn receive() -> io::Result<Receiver<AcpMessage>> {
    let (sender, messages) = sync_channel(MAX_WAITING);
    thread::Builder::new().name("gannet-input".to_owned()).spawn(move || {
        let mut input = stdin().lock();
        // An input that cannot be read has ended.
        while let Ok(Some(message)) = next(&mut input) {
            if sender.send(message).is_err() {
                return;
            }
        }
    })?;
    Ok(messages)
}

/// The next message; `None` at the end of the input. Empty lines are none.
fn next(input: &mut impl BufRead) -> io::Result<Option<AcpMessage>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() > MAX_LINE && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            let text = format!("expected a line of at most {} MiB", MAX_LINE >> 20);
            return Ok(Some(malformed(Value::Null, AcpError::invalid_request(text))));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(parsed(&line)));
        }
    }
}

fn malformed(id: Value, error: AcpError) -> AcpMessage {
    AcpMessage::Malformed { id, error }
}

fn parsed(line: &[u8]) -> AcpMessage {
    match serde_json::from_slice(line) {
        Ok(Value::Object(message)) => message_of(message),
        Ok(_) => {
            let text = "expected a message, which is an object; batches are not part of it";
            malformed(Value::Null, AcpError::invalid_request(text))
        }
        Err(error) => {
            malformed(Value::Null, AcpError::parse(format!("expected a line of JSON: {error}")))
        }
    }
}

fn message_of(mut message: Map<String, Value>) -> AcpMessage {
    let id = message.remove("id");
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64() || id.is_null();
    if let Some(wrong) = id.as_ref().filter(|id| !is_id(id)) {
        let text = format!("id: expected a string or a whole number, found {wrong}");
        return malformed(Value::Null, AcpError::invalid_request(text));
    }
    let wrong = |id: Option<Value>, text: &str| {
        malformed(id.unwrap_or_default(), AcpError::invalid_request(text))
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(id, "jsonrpc: expected \"2.0\"");
    }
    let params = message.remove("params").unwrap_or_default();
    match (message.remove("method"), id) {
        (Some(Value::String(method)), Some(id)) => AcpMessage::Request { id, method, params },
        (Some(Value::String(method)), None) => AcpMessage::Notification { method, params },
        (Some(_), id) => wrong(id, "method: expected a string"),
        (None, Some(id)) if message.contains_key("error") => {
            AcpMessage::Answer { id, result: None }
        }
        (None, Some(id)) if message.contains_key("result") => {
            AcpMessage::Answer { id, result: message.remove("result") }
        }
        (None, id) => wrong(id, "expected a method, or a result or error with an id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(mut input: &[u8]) -> Vec<AcpMessage> {
        std::iter::from_fn(|| next(&mut input).unwrap()).collect()
    }

    fn error(line: &str) -> AcpError {
        match parsed(line.as_bytes()) {
            AcpMessage::Malformed { error, .. } => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let lines = [
            r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#,
            "\r",
            r#"{"jsonrpc":"2.0","method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":0,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
        ];
        let method = || "m".to_owned();
        let expected = [
            AcpMessage::Request { id: "a".into(), method: method(), params: json!({"x": 1}) },
            AcpMessage::Notification { method: method(), params: Value::Null },
            AcpMessage::Answer { id: 0.into(), result: Some(Value::Null) },
            AcpMessage::Answer { id: 1.into(), result: None },
        ];
        assert_eq!(all(lines.join("\n").as_bytes()), expected);
    }

    #[test]
    fn lines_that_are_no_messages_are_errors() {
        assert_eq!(error("{").code, -32700);
        for line in ["[]", "1", "{}", r#"{"id":1,"method":"m"}"#, r#"{"jsonrpc":"2.0","id":1}"#] {
            assert_eq!(error(line).code, -32600, "{line}");
        }
        for id in ["1.5", "[]", "{}", "true", "1e30"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert!(error(&line).message.starts_with("id: expected"), "{line}");
        }
        let named = parsed(br#"{"jsonrpc":"2.0","id":7,"method":5}"#);
        assert!(matches!(named, AcpMessage::Malformed { id, .. } if id == 7));
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_whole() {
        let mut input = vec![b'x'; MAX_LINE + 5];
        input.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n");
        let found = all(&input);
        assert!(matches!(&found[0], AcpMessage::Malformed { error, .. } if error.code == -32600));
        assert!(matches!(&found[1..], [AcpMessage::Notification { .. }]), "{:?}", &found[1..]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let lines = bytes.split(|it| *it == b'\n');
            let lines = lines.filter(|it| !it.trim_ascii().is_empty()).count();
            prop_assert_eq!(all(&bytes).len(), lines);
        }
    }
}
