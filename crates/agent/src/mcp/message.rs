//! Messages of JSON-RPC as the protocol has them.

use serde_json::{Map, Value, json};

/// Most bytes of a message of a server.
pub(super) const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Most values of a message: more would take many times its bytes in memory.
const MAX_MESSAGE_VALUES: usize = 1 << 18;

/// The version without sessions.
pub(super) const MODERN_VERSION: &str = "2026-07-28";

/// The versions with `initialize`, the newest first.
pub(super) const LEGACY_VERSIONS: [&str; 4] =
    ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// How a server is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProtocolEra {
    /// Every request says its version.
    Modern,
    /// `initialize` is under way.
    Initializing,
    /// `initialize` has agreed on this version.
    Legacy(String),
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(super) struct RpcRequest {
    /// The method.
    pub method: &'static str,
    /// Its parameters.
    pub params: Map<String, Value>,
    /// Header fields of HTTP that repeat parameters.
    pub headers: Vec<(String, String)>,
}

impl RpcRequest {
    /// A request that no header field repeats.
    pub(super) fn new(method: &'static str, params: Map<String, Value>) -> Self {
        Self { method, params, headers: Vec::new() }
    }

    /// The request as a message.
    pub(super) fn message(&self, id: u64, era: &ProtocolEra) -> Value {
        let mut params = self.params.clone();
        if *era == ProtocolEra::Modern {
            params.insert("_meta".to_owned(), modern_meta());
        }
        json!({"jsonrpc": "2.0", "id": id, "method": self.method, "params": params})
    }
}

/// The client as it names itself.
pub(super) fn client_info() -> Value {
    json!({"name": "gannet", "version": env!("CARGO_PKG_VERSION")})
}

fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": client_info(),
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// The message that the request `id` is cancelled.
pub(super) fn cancellation(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "cancelled by the client"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// The answer to a request of a server: `ping` is answered, all else is refused.
pub(super) fn reply(id: &Value, method: &str) -> Value {
    match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => {
            let error = json!({"code": -32601, "message": "method not found"});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}

/// An error that a server answers with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcError {
    /// Its number.
    pub code: i64,
    /// Its text, not printable.
    pub message: String,
    /// More about it.
    pub data: Value,
}

/// What a server answers.
pub(super) type RpcOutcome = Result<Value, RpcError>;

/// A message of a server.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// An answer; errors may lack the number of the request.
    Answer(Option<u64>, RpcOutcome),
    /// A request with its number and method.
    Request(Value, String),
    /// A notification.
    Notification,
}

/// The message in `bytes`, or those of a batch, as the version 2025-03-26 has them; none if they
/// are none, or are too many.
pub(super) fn parsed(bytes: &[u8]) -> Vec<Incoming> {
    if bytes.len() > MAX_MESSAGE_BYTES || values_in(bytes) > MAX_MESSAGE_VALUES {
        return Vec::new();
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Array(batch)) => batch.into_iter().filter_map(message).collect(),
        Ok(value) => message(value).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

fn message(value: Value) -> Option<Incoming> {
    let Value::Object(mut message) = value else { return None };
    let id = message.remove("id").unwrap_or_default();
    if let Some(Value::String(method)) = message.get("method") {
        return Some(match id {
            Value::Null => Incoming::Notification,
            id => Incoming::Request(id, method.clone()),
        });
    }
    if let Some(result) = message.remove("result") {
        return Some(Incoming::Answer(Some(id.as_u64()?), Ok(result)));
    }
    let mut error = match message.remove("error")? {
        Value::Object(error) => error,
        _ => return None,
    };
    let id = match id {
        Value::Null => None,
        id => Some(id.as_u64()?),
    };
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let data = error.remove("data").unwrap_or_default();
    Some(Incoming::Answer(id, Err(RpcError { code, message: text, data })))
}

/// How many values a JSON text has at most, or so: what stands between its commas and brackets.
fn values_in(bytes: &[u8]) -> usize {
    let (mut is_text, mut is_escaped, mut values) = (false, false, 0);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_distinguished() {
        let check = |text: &str, expected: Option<Incoming>| {
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(parsed(text.as_bytes()), expected, "{text}");
        };
        let batch = br#"[{"method": "x"}, 3, [], {"id": 3, "result": {}}]"#;
        let answer = Incoming::Answer(Some(3), Ok(json!({})));
        assert_eq!(parsed(batch), [Incoming::Notification, answer]);
        check(r#"{"id": 3, "result": {}}"#, Some(Incoming::Answer(Some(3), Ok(json!({})))));
        let error = RpcError { code: -1, message: "x".to_owned(), data: json!([1]) };
        let text = r#"{"id": null, "error": {"code": -1, "message": "x", "data": [1]}}"#;
        check(text, Some(Incoming::Answer(None, Err(error))));
        let empty = RpcError { code: 0, message: String::new(), data: Value::Null };
        check(r#"{"id": 1, "error": {}}"#, Some(Incoming::Answer(Some(1), Err(empty))));
        check(r#"{"method": "x"}"#, Some(Incoming::Notification));
        let request = Incoming::Request(json!("a"), "x".to_owned());
        check(r#"{"method": "x", "id": "a"}"#, Some(request));
        for none in [
            "",
            "x",
            "[]",
            "{}",
            "null",
            r#"{"id": "3", "result": {}}"#,
            r#"{"id": -1, "result": 1}"#,
            r#"{"result": 1}"#,
            r#"{"id": 1, "error": 2}"#,
            r#"{"id": 1, "method": 3}"#,
        ] {
            check(none, None);
        }
        assert_eq!(parsed(b"{\"id\": 1, \"result\": \"\xff\"}"), []);
    }

    #[test]
    fn messages_of_too_many_values_or_too_deep_ones_are_none() {
        let of = |inner: &str| format!(r#"{{"id": 1, "result": {inner}}}"#);
        let many = format!("[{}0]", "0,".repeat(MAX_MESSAGE_VALUES));
        assert_eq!(parsed(of(&many).as_bytes()), []);
        let text = format!("\"{}\\\"[[\"", ",".repeat(MAX_MESSAGE_VALUES));
        assert_eq!(parsed(of(&text).as_bytes()).len(), 1);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(parsed(of(&deep).as_bytes()), []);
    }

    proptest! {
        #[test]
        fn no_bytes_stop_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parsed(&bytes);
        }
    }
}
