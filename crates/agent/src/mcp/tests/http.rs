//! Addresses of both protocols, with JSON and with streams of events.

use super::web_server::{
    WebRequest, WebServer, begin_stream, error, event, respond, respond_json, result,
};
use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Instant;

fn tools() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let schema = json!({"type": "object", "properties": {"region": region}});
    json!({"tools": [{"name": "t", "inputSchema": schema}]})
}

fn content(text: &str) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

/// The answer of a server without sessions to all but calls; `None` for calls.
fn modern(request: &WebRequest) -> Option<Value> {
    match request.rpc() {
        "server/discover" => Some(result(
            request,
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        )),
        "tools/list" => Some(result(request, tools())),
        _ => None,
    }
}

/// A server without sessions, with `call` for calls.
fn modern_server(call: impl Fn(&WebRequest, &mut TcpStream) + Send + Sync + 'static) -> WebServer {
    WebServer::start(move |request, stream| match modern(request) {
        Some(answer) => respond_json(stream, "200 OK", &answer),
        None => call(request, stream),
    })
}

/// An older server, with a session or without, and `call` for calls.
fn legacy_server(
    session: Option<&'static str>,
    call: impl Fn(&WebRequest, &mut TcpStream) + Send + Sync + 'static,
) -> WebServer {
    WebServer::start(move |request, stream| {
        let is_begin = request.rpc() == "initialize";
        if !is_begin && request.header("mcp-session-id") != session {
            // What a server with sessions answers to the first question.
            return respond(stream, "400 Bad Request", "", b"no session");
        }
        match request.rpc() {
            "server/discover" => respond(stream, "202 Accepted", "", b""),
            "initialize" => {
                let version =
                    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}});
                let session = session.map(|it| format!("mcp-session-id: {it}\r\n"));
                let head =
                    format!("content-type: application/json\r\n{}", session.unwrap_or_default());
                let body = result(request, version).to_string();
                respond(stream, "200 OK", &head, body.as_bytes());
            }
            "tools/list" => respond_json(stream, "200 OK", &result(request, tools())),
            "tools/call" => call(request, stream),
            _ => respond(stream, "202 Accepted", "", b""),
        }
    })
}

fn at(server: &WebServer) -> McpServers {
    at_in(&context(), server)
}

fn at_in(context: &McpContext, server: &WebServer) -> McpServers {
    started(&[("s", McpServerSettings::Url(server.url.clone()))], context)
}

fn failed(answer: Result<McpAnswer, McpError>) -> String {
    match answer {
        Err(McpError::Failed { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_without_sessions_gets_the_header_fields_of_a_request() {
    let server = modern_server(|request, stream| {
        respond_json(stream, "200 OK", &result(request, content("done")));
    });
    let mut servers = at(&server);
    assert_eq!(servers.problems(), []);
    assert_eq!(call(&mut servers, "s__t", json!({"region": "é"})), text("done"));
    drop(servers);
    assert_eq!(server.methods(), ["server/discover", "tools/list", "tools/call"]);
    let requests = server.requests.lock().unwrap();
    let last = &requests[2];
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
        ("mcp-param-region", "=?base64?w6k=?="),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(last.header(name), Some(value), "{name}");
    }
    assert_eq!(last.header("mcp-session-id"), None);
    let version = "io.modelcontextprotocol/protocolVersion";
    assert_eq!(last.body["params"]["_meta"][version], "2026-07-28");
}

#[test]
fn streams_of_events_are_read_until_the_answer() {
    let server = modern_server(|request, stream| {
        begin_stream(stream);
        let _ = stream.write_all(b": hello\r\n\r\n");
        event(stream, &json!({"method": "notifications/progress"}));
        event(stream, &json!({"method": "sampling/createMessage", "id": 5}));
        event(stream, &json!({"id": 999, "result": {}}));
        let _ = stream.write_all(b"data: {garbage\xff\n\n");
        let answer = result(request, content("é")).to_string();
        for byte in format!("data: {answer}\r\n\r\n").bytes() {
            let _ = stream.write_all(&[byte]);
        }
    });
    let mut servers = at(&server);
    assert_eq!(call(&mut servers, "s__t", json!({})), text("é"));
    // A request of a server within the protocol without sessions gets no answer.
    assert_eq!(server.requests.lock().unwrap().len(), 3);
}

#[test]
fn an_older_server_has_a_session_that_is_ended() {
    for session in [Some("abc-1"), None] {
        let server = legacy_server(session, |request, stream| {
            begin_stream(stream);
            event(stream, &json!({"method": "roots/list", "id": "r"}));
            event(stream, &result(request, content("old")));
        });
        let mut servers = at(&server);
        assert_eq!(servers.problems(), []);
        assert_eq!(call(&mut servers, "s__t", json!({"region": "x"})), text("old"));
        drop(servers);
        let requests = server.requests.lock().unwrap();
        let methods: Vec<&str> = requests.iter().map(WebRequest::rpc).collect();
        let expected = [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
            "",
        ];
        assert_eq!(methods[..6], expected);
        assert_eq!(requests[5].body["error"]["code"], -32601);
        assert_eq!(requests[4].header("mcp-protocol-version"), Some("2025-11-25"));
        assert_eq!(requests[4].header("mcp-session-id"), session);
        assert_eq!(requests[4].header("mcp-param-region"), None);
        assert_eq!(requests[1].header("mcp-protocol-version"), None);
        let last = requests.last().unwrap();
        assert_eq!(last.method == "DELETE", session.is_some());
    }
}

#[test]
fn a_session_that_is_lost_is_begun_again() {
    let lost = Mutex::new(1);
    let server = legacy_server(Some("abc"), move |request, stream| {
        let mut lost = lost.lock().unwrap();
        if *lost > 0 {
            *lost -= 1;
            return respond(stream, "404 Not Found", "", b"");
        }
        respond_json(stream, "200 OK", &result(request, content("again")));
    });
    let mut servers = at(&server);
    assert_eq!(call(&mut servers, "s__t", json!({})), text("again"));
    let begun = server.methods().iter().filter(|it| *it == "initialize").count();
    assert_eq!(begun, 2);
    let never = legacy_server(Some("abc"), |_, stream| respond(stream, "404 Not Found", "", b""));
    let mut servers = at(&never);
    assert!(failed(call(&mut servers, "s__t", json!({}))).contains("session is lost"));
}

#[test]
fn statuses_that_are_no_success_are_errors() {
    let statuses = ["400 Bad Request", "401 Unauthorized", "404 Not Found", "500 Oh"];
    for status in statuses {
        let server = modern_server(move |_, stream| {
            respond(stream, status, "content-type: text/html\r\n", b"<p>\x1b[2J\xff");
        });
        let problem = failed(call(&mut at(&server), "s__t", json!({})));
        assert!(problem.starts_with("it answers ") && problem.contains("<p><1b>[2J"), "{problem}");
        let server = modern_server(move |request, stream| {
            let mut message = error(request, -32602);
            message["id"] = Value::Null;
            respond_json(stream, status, &message);
        });
        let answer = call(&mut at(&server), "s__t", json!({}));
        let (server, message) = ("s".to_owned(), "refused<1b>".to_owned());
        assert_eq!(answer, Err(McpError::Refused { server, code: -32602, message }));
        // All of it fails where nothing is answered otherwise.
        let server = WebServer::start(move |_, stream| respond(stream, status, "", b""));
        let servers = at(&server);
        assert!(problem_text(&servers).contains(&status[..3]), "{:?}", servers.problems());
        assert_eq!(server.methods(), ["server/discover", "initialize"]);
    }
}

fn problem_text(servers: &McpServers) -> &str {
    problem(servers)
}

#[test]
fn redirects_are_not_followed() {
    let target = modern_server(|_, _| {});
    let url = target.url.clone();
    let server = WebServer::start(move |_, stream| {
        respond(stream, "307 Temporary Redirect", &format!("location: {url}\r\n"), b"");
    });
    let servers = at(&server);
    let problem = problem(&servers);
    assert!(problem.contains(&target.url) && problem.contains("is not followed"), "{problem}");
    assert!(target.requests.lock().unwrap().is_empty());
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}

#[test]
fn answers_that_are_none_are_errors() {
    let check = |expected: &str, script: fn(&WebRequest, &mut TcpStream)| {
        let server = modern_server(script);
        let problem = failed(call(&mut at(&server), "s__t", json!({})));
        assert!(problem.contains(expected), "{expected}: {problem}");
    };
    check("it answers no message: <html>", |_, stream| respond(stream, "200 OK", "", b"<html>"));
    check("it answers no message: nothing", |_, stream| respond(stream, "202 Ok", "", b""));
    check("it answers no message", |_, stream| {
        respond_json(stream, "200 OK", &json!({"id": 77, "result": {}}));
    });
    check("ends before the result", |_, stream| begin_stream(stream));
    check("breaks off", |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{");
    });
    check("by HTTP", |_, stream| drop(stream.write_all(b"SSH-2.0-x\r\n\r\n")));
    check("by HTTP", |_, _| {});
    check("by HTTP", |_, stream| drop(stream.write_all(&vec![b'x'; 1 << 20])));
    check("over 8388608 bytes", |_, stream| {
        respond(stream, "200 OK", "", &vec![b' '; (8 << 20) + 1]);
    });
    check("over 8388608 bytes", |_, stream| {
        begin_stream(stream);
        while stream.write_all(b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n").is_ok() {}
    });
    let nothing = McpServerSettings::Url("http://127.0.0.1:9/".to_owned());
    assert!(problem(&started(&[("s", nothing)], &context())).contains("cannot be reached"));
}

#[test]
fn an_endless_stream_ends_by_the_time() {
    let server = modern_server(|_, stream| {
        begin_stream(stream);
        while stream.write_all(b"data: {\"method\": \"x\"}\n\n").is_ok() {}
    });
    let mut context = context();
    context.limits.call = Duration::from_millis(400);
    let answer = call(&mut at_in(&context, &server), "s__t", json!({}));
    assert!(matches!(answer, Err(McpError::TimedOut { .. })), "{answer:?}");
}

/// A cancelled call closes its connection, and an older server gets the notification as well.
#[test]
fn cancelled_calls_close_their_connection() {
    for is_modern in [true, false] {
        let (sender, closed) = channel();
        let sender = Mutex::new(sender);
        let script = move |_: &WebRequest, stream: &mut TcpStream| {
            begin_stream(stream);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            let _ = sender.lock().unwrap().send(());
        };
        let server = match is_modern {
            true => modern_server(script),
            false => legacy_server(Some("x"), script),
        };
        let mut servers = at(&server);
        let begun = Instant::now();
        let is_cancelled = || begun.elapsed() > Duration::from_millis(300);
        let answer = servers.call("s__t", &json!({}), &is_cancelled);
        assert_eq!(answer, Err(McpError::Cancelled("s".to_owned())));
        assert!(begun.elapsed() < Duration::from_secs(3));
        closed.recv_timeout(Duration::from_secs(5)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let is_notified = server.methods().iter().any(|it| it == "notifications/cancelled");
        assert_eq!(is_notified, !is_modern);
    }
}

#[test]
fn a_certificate_that_no_authority_has_signed_is_refused() {
    let server = WebServer::start(|_, _| {});
    let url = server.url.replace("http://", "https://");
    let servers = started(&[("s", McpServerSettings::Url(url))], &context());
    assert!(problem(&servers).contains("TLS fails"), "{:?}", servers.problems());
}

#[test]
fn a_caller_within_a_runtime_is_served_too() {
    let server = modern_server(|request, stream| {
        respond_json(stream, "200 OK", &result(request, content("done")));
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut servers = at(&server);
        assert_eq!(call(&mut servers, "s__t", json!({})), text("done"));
    });
}

#[test]
fn an_older_server_that_drops_the_first_question_gets_initialize() {
    let server = WebServer::start(|request, stream| match request.rpc() {
        // The connection is closed without an answer.
        "server/discover" => {}
        "initialize" => {
            let version = json!({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}});
            respond_json(stream, "200 OK", &result(request, version));
        }
        "tools/list" => {
            let note = json!({"jsonrpc": "2.0", "method": "notifications/message"});
            respond_json(stream, "200 OK", &json!([note, result(request, tools())]));
        }
        "tools/call" => {
            begin_stream(stream);
            event(stream, &json!([result(request, content("done"))]));
        }
        _ => respond(stream, "202 Accepted", "", b""),
    });
    let mut servers = at(&server);
    assert_eq!(servers.problems(), []);
    assert_eq!(call(&mut servers, "s__t", json!({})), text("done"));
}
