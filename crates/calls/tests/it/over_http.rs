//! The law that a call in process is a call over HTTP, for every route.

use super::{SOON, chunks, server};
use calls::LocalServer;
use reqwest::Client;
use serde_json::{Value, json};
use server::ServerOptions;
use std::collections::BTreeSet;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Members that differ from request to request: names and times.
const VOLATILE: [&str; 13] = [
    "id",
    "created",
    "created_at",
    "completed_at",
    "item_id",
    "response_id",
    "total_duration",
    "load_duration",
    "prompt_eval_duration",
    "eval_duration",
    "timings",
    "obfuscation",
    "expires_at",
];
/// Routes whose numbers count all requests before.
const COUNTING: [&str; 3] = ["/v1/stats", "/slots", "/props"];
/// The route that names each route that was called before.
const METRICS: &str = "/metrics";

/// Bodies for routes that compute, several for some; all others get an empty object.
fn bodies() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "What is 3 + 4?"}]);
    let chat = |stream: bool| json!({"messages": messages, "temperature": 0, "stream": stream});
    let prompt = |stream: bool| {
        json!({"prompt": "The capital of France is", "max_tokens": 5,
        "n_predict": 5, "temperature": 0, "stream": stream})
    };
    let response = |stream: bool| {
        json!({"input": "What is 3 + 4?", "temperature": 0,
        "stream": stream})
    };
    let anthropic = |stream: bool| {
        json!({"model": "x", "max_tokens": 9, "messages": messages,
        "temperature": 0, "stream": stream})
    };
    let ollama = |stream: bool| {
        json!({"model": "gannet-tiny", "messages": messages,
        "stream": stream, "options": {"temperature": 0}})
    };
    let generate = |stream: bool| {
        json!({"model": "gannet-tiny", "prompt": "Hello!",
        "stream": stream, "options": {"temperature": 0}})
    };
    vec![
        ("/v1/chat/completions", chat(false)),
        ("/v1/chat/completions", chat(true)),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "temperature": 0,
            "response_format": {"type": "json_object"}, "max_tokens": 12}),
        ),
        ("/v1/completions", prompt(false)),
        ("/v1/completions", prompt(true)),
        ("/completion", prompt(false)),
        ("/completion", prompt(true)),
        ("/v1/responses", response(false)),
        ("/v1/responses", response(true)),
        ("/v1/messages", anthropic(false)),
        ("/v1/messages", anthropic(true)),
        ("/api/chat", ollama(false)),
        ("/api/chat", ollama(true)),
        ("/api/generate", generate(false)),
        ("/api/generate", generate(true)),
        ("/v1/embeddings", json!({"input": ["a", "b"]})),
        ("/tokenize", json!({"content": "Hello world"})),
        ("/detokenize", json!({"tokens": [5, 6, 7]})),
        ("/apply-template", json!({"messages": messages})),
        ("/v1/messages/count_tokens", json!({"model": "x", "messages": messages})),
    ]
}

#[test]
fn a_call_in_process_is_a_call_over_http() {
    let server = server();
    let runtime = Runtime::new().unwrap();
    let address = serve(&runtime, &server);
    let client = Client::new();
    let (mut checked, mut different) = (0, Vec::new());
    for (method, path, body) in routes(&server) {
        // The first call fills the caches of prompts.
        in_process(&server, method, &path, &body);
        let over_http = runtime.block_on(over_http(&client, &address, method, &path, &body));
        let found = in_process(&server, method, &path, &body);
        if found != over_http {
            different.push(format!("{method} {path} {body}: {found:?}, over HTTP {over_http:?}"));
        }
        checked += 1;
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(checked > 60, "{checked} routes");
}

/// Serves the engine of `server` on a socket, and returns the address.
fn serve(runtime: &Runtime, server: &LocalServer) -> String {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let service = server.engine().service().clone();
    let shutdown = std::future::pending();
    runtime.spawn(::server::serve(listener, service, ServerOptions::default(), shutdown));
    address
}

/// Every route of the document with a body, and those above with theirs.
fn routes(server: &LocalServer) -> Vec<(&'static str, String, Value)> {
    let call = server.call("GET", "/openapi.json", Vec::new()).unwrap();
    let document: Value = serde_json::from_slice(&chunks(&call).concat()).unwrap();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        for (name, method) in [("get", "GET"), ("post", "POST"), ("delete", "DELETE")] {
            if operations.get(name).is_some() {
                routes.push((method, path.clone(), json!({})));
            }
        }
    }
    let known: BTreeSet<_> = routes.iter().map(|(_, path, _)| path.clone()).collect();
    for (path, body) in bodies() {
        assert!(known.contains(path), "{path} is no route");
        routes.push(("POST", path.to_owned(), body));
    }
    routes
}

/// The status and the chunks of a response, without what differs from request to request.
type Compared = (u16, Vec<String>);

fn in_process(server: &LocalServer, method: &str, path: &str, body: &Value) -> Compared {
    let body = if method == "POST" { body.to_string() } else { String::new() };
    let call = server.call(method, path, body.into_bytes()).unwrap();
    let status = call.wait_status(Some(SOON)).unwrap();
    (status, chunks(&call).iter().map(|chunk| stable(path, chunk)).collect())
}

async fn over_http(
    client: &Client,
    address: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Compared {
    let url = format!("{address}{path}");
    let request = match method {
        "POST" => client.post(url).json(body),
        "DELETE" => client.delete(url),
        _ => client.get(url),
    };
    let response = request.send().await.unwrap();
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let data = |line: &str| line.strip_prefix("data: ").map(str::to_owned);
    let chunks: Vec<String> = match kind.as_deref().unwrap_or_default() {
        "text/event-stream" => text.lines().filter_map(data).filter(|it| it != "[DONE]").collect(),
        "application/x-ndjson" => text.lines().map(str::to_owned).collect(),
        _ => vec![text.into_owned()],
    };
    (status, chunks.iter().map(|chunk| stable(path, chunk.as_bytes())).collect())
}

/// `chunk` without what differs from request to request.
fn stable(path: &str, chunk: &[u8]) -> String {
    let all_numbers = COUNTING.contains(&path);
    match serde_json::from_slice::<Value>(chunk) {
        Ok(mut value) => {
            mask(&mut value, all_numbers);
            value.to_string()
        }
        Err(_) => {
            let text = String::from_utf8_lossy(chunk);
            let kept =
                text.split_inclusive('\n').filter(|it| path != METRICS || it.starts_with('#'));
            kept.collect()
        }
    }
}

fn mask(value: &mut Value, all_numbers: bool) {
    match value {
        Value::Object(members) => {
            for (key, member) in members.iter_mut() {
                match VOLATILE.contains(&key.as_str()) {
                    true => *member = Value::Null,
                    false => mask(member, all_numbers),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|it| mask(it, all_numbers)),
        Value::Number(_) if all_numbers => *value = Value::Null,
        _ => {}
    }
}
