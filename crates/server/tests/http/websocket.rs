//! The Responses API over a WebSocket.

use crate::harness::{Server, error, ok, until};
use crate::support::Act;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use server::{ApiKeys, RateLimits, ServerOptions};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

const PATH: &str = "/v1/responses";
const PATIENCE: Duration = Duration::from_secs(10);
const TICK: Act = Act::Pause(Duration::from_millis(20));

/// One token every 20 ms.
fn slow_tokens(count: usize) -> Vec<Act> {
    std::iter::repeat_n([Act::Say("x"), TICK], count).flatten().collect()
}

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    async fn open(server: &Server) -> Self {
        Self::with(server, &[]).await.unwrap()
    }

    async fn with(server: &Server, headers: &[(&'static str, &str)]) -> Result<Self, Error> {
        let url = format!("ws://{}{PATH}", server.addr);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let stream = TcpStream::connect(server.addr).await.unwrap();
        Ok(Self(client_async(request, stream).await?.0))
    }

    async fn say(&mut self, text: impl Into<String>) {
        self.0.send(Message::text(text.into())).await.unwrap();
    }

    /// Asks for a response with `extra` members.
    async fn create(&mut self, extra: Value) {
        let mut body = json!({"type": "response.create", "model": "any", "input": "hi"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        self.say(body.to_string()).await;
    }

    /// The next event, or why the connection was closed.
    async fn next(&mut self) -> Result<Value, Option<CloseCode>> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a message");
            match next {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code)),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// The events up to the last one of a response, or to an error.
    async fn turn(&mut self) -> Vec<Value> {
        let ends = ["response.completed", "response.incomplete", "response.failed", "error"];
        let mut events: Vec<Value> = Vec::new();
        while !events.last().is_some_and(|last| ends.iter().any(|end| last["type"] == *end)) {
            events.push(self.next().await.unwrap());
        }
        events
    }

    /// The response to a request, which must succeed.
    async fn ask(&mut self, extra: Value) -> Value {
        self.create(extra).await;
        let mut events = self.turn().await;
        let last = events.last_mut().unwrap();
        assert_eq!(last["type"], "response.completed", "{last}");
        last["response"].take()
    }

    /// The error that answers a request.
    async fn refused(&mut self, extra: Value, status: u16) -> Value {
        self.create(extra).await;
        self.error(status).await
    }

    async fn error(&mut self, status: u16) -> Value {
        let event = self.next().await.unwrap();
        assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(status)));
        assert!(event["error"]["code"].is_string(), "{event}");
        event["error"].clone()
    }

    async fn closes(&mut self, expected: CloseCode) {
        assert_eq!(self.next().await.unwrap_err(), Some(expected));
    }
}

/// `event` without ids and times.
fn bare(event: &Value) -> Value {
    match event {
        Value::Object(members) => {
            let gone = ["id", "item_id", "created_at", "completed_at"];
            let left = members.iter().filter(|(name, _)| !gone.contains(&name.as_str()));
            left.map(|(name, member)| (name.clone(), bare(member))).collect()
        }
        Value::Array(all) => all.iter().map(bare).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn messages_are_the_events_of_the_stream() {
    let server = Server::start([Act::Say("<think>why</think>hello<|im_end|>")]).await;
    let body = json!({"input": "hi", "stream": true});
    let text = server.post(PATH, &body).await.text().await.unwrap();
    let streamed: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| bare(&serde_json::from_str(data).unwrap()))
        .collect();
    let mut socket = Socket::open(&server).await;
    // Clients that send the same body over both transports stream over both.
    for extra in [json!({}), json!({"stream": true})] {
        socket.create(extra).await;
        let events: Vec<Value> = socket.turn().await.iter().map(bare).collect();
        assert_eq!(events, streamed);
    }
}

#[tokio::test]
async fn messages_that_come_together_are_answered_one_after_the_other() {
    let server = Server::start(slow_tokens(5)).await;
    let mut socket = Socket::open(&server).await;
    for number in 0..3 {
        socket.create(json!({"metadata": {"n": number}})).await;
    }
    for number in 0..3 {
        let events = socket.turn().await;
        let numbers: Vec<&Value> = events.iter().map(|event| &event["sequence_number"]).collect();
        assert_eq!(numbers, (0..events.len()).collect::<Vec<_>>());
        assert_eq!(events.last().unwrap()["response"]["metadata"]["n"], number);
    }
}

#[tokio::test]
async fn a_connection_goes_on_from_its_last_response_though_it_is_not_stored() {
    let server = Server::start([Act::Say("hello<|im_end|>")]).await;
    let mut socket = Socket::open(&server).await;
    let unstored = |previous: &Value| json!({"store": false, "previous_response_id": previous});
    let first = socket.ask(json!({"store": false})).await;
    error(server.get(&format!("{PATH}/{}", first["id"].as_str().unwrap())).await, 404).await;
    let second = socket.ask(unstored(&first["id"])).await;
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    // It remembers the last one alone.
    let code = async |socket: &mut Socket, id: &Value| {
        let error = socket.refused(unstored(id), 400).await;
        assert_eq!(error["param"], "previous_response_id");
        error["code"].clone()
    };
    assert_eq!(code(&mut socket, &first["id"]).await, "previous_response_not_found");
    let third = socket.ask(unstored(&second["id"])).await;
    // Another connection knows nothing of it.
    let mut other = Socket::open(&server).await;
    assert_eq!(code(&mut other, &third["id"]).await, "previous_response_not_found");
    other.ask(json!({"store": false})).await;
    // A turn that fails takes the response with it that it was to continue.
    let stray = json!([{"type": "function_call_output", "call_id": "call_no", "output": "x"}]);
    let mut failing = unstored(&third["id"]);
    failing["input"] = stray;
    let error = socket.refused(failing, 400).await;
    assert!(error["message"].as_str().unwrap().contains("call_no"), "{error}");
    assert_eq!(code(&mut socket, &third["id"]).await, "previous_response_not_found");
}

#[tokio::test]
async fn stored_responses_are_continued_on_any_connection() {
    let server = Server::start([Act::Say("hello<|im_end|>")]).await;
    let first = Socket::open(&server).await.ask(json!({})).await;
    let next = json!({"previous_response_id": first["id"]});
    let mut socket = Socket::open(&server).await;
    socket.ask(next.clone()).await;
    socket.ask(next.clone()).await;
    let mut body = next;
    body["input"] = "hi".into();
    ok(server.post(PATH, &body).await).await;
}

#[tokio::test]
async fn a_compacted_conversation_begins_a_new_chain() {
    let server = Server::start([Act::Say("hello<|im_end|>")]).await;
    let conversation = json!({"model": "m", "input": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}]});
    let compacted = ok(server.post("/v1/responses/compact", &conversation).await).await;
    let mut input = compacted["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "go on"}));
    let mut socket = Socket::open(&server).await;
    let response = socket.ask(json!({"input": input, "store": false, "tools": []})).await;
    assert_eq!(response["status"], "completed");
}

#[tokio::test]
async fn a_prompt_is_computed_without_an_answer() {
    let server = Server::start([Act::Say("hello")]).await;
    let mut socket = Socket::open(&server).await;
    let warm = socket.ask(json!({"generate": false, "store": false})).await;
    assert_eq!((&warm["output"], &warm["max_output_tokens"]), (&json!([]), &json!(null)));
    let (report, server) = server.report().await;
    assert_eq!(report.request.max_tokens, Some(1));
    let next = json!({"store": false, "previous_response_id": warm["id"], "input": "more"});
    socket.ask(next).await;
    let (next, _server) = server.report().await;
    assert!(next.request.prompt.len() > report.request.prompt.len());
}

#[tokio::test]
async fn refused_requests_are_errors_and_the_connection_goes_on() {
    let options = ServerOptions { body_limit: 2000, ..Default::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let mut socket = Socket::open(&server).await;
    for (message, param) in [
        ("{", json!(null)),
        ("[1]", json!(null)),
        ("{}", json!("type")),
        (r#"{"type": "response.cancel"}"#, json!("type")),
        (r#"{"type": "response.create"}"#, json!("input")),
        (r#"{"type": "response.create", "input": "x", "background": true}"#, json!("background")),
        (
            r#"{"type": "response.create", "input": "x", "temperature": "hot"}"#,
            json!("temperature"),
        ),
    ] {
        socket.say(message).await;
        assert_eq!(socket.error(400).await["param"], param, "{message}");
    }
    let error = socket.refused(json!({"input": "x".repeat(2000)}), 413).await;
    assert_eq!(error["code"], "body_too_large");
    socket.ask(json!({})).await;
    // Far too large a message ends the connection.
    socket.say("x".repeat(10_000)).await;
    assert!(socket.next().await.is_err());
}

#[tokio::test]
async fn responses_that_break_off_have_one_last_event() {
    let server = Server::start([Act::Say("hello"), Act::Fail("gone")]).await;
    let mut socket = Socket::open(&server).await;
    for _ in 0..2 {
        socket.create(json!({"store": false})).await;
        let events = socket.turn().await;
        let failed = events.last().unwrap();
        assert_eq!(failed["type"], "response.failed");
        assert_eq!(failed["response"]["error"]["message"], "gone");
        let next = json!({"previous_response_id": failed["response"]["id"], "store": false});
        assert_eq!(socket.refused(next, 400).await["code"], "previous_response_not_found");
    }
}

#[tokio::test]
async fn leaving_cancels_the_response() {
    let server = Server::start(slow_tokens(200)).await;
    let mut socket = Socket::open(&server).await;
    socket.create(json!({})).await;
    while socket.next().await.unwrap()["type"] != "response.output_text.delta" {}
    drop(socket);
    let (report, server) = server.report().await;
    assert!(report.cancelled && report.sent <= 8, "{} were sent", report.sent);
    until("the client has left", async || server.stats().await["requests"]["clients_left"] == 1)
        .await;
}

#[tokio::test]
async fn keys_and_origins_are_checked() {
    let keys = ApiKeys::new(["secret"]).unwrap();
    let options = ServerOptions { keys, ..Default::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let status = async |headers: &[(&'static str, &str)]| match Socket::with(&server, headers).await
    {
        Err(Error::Http(response)) => response.status().as_u16(),
        Err(other) => panic!("{other}"),
        Ok(mut socket) => {
            socket.ask(json!({})).await;
            101
        }
    };
    let key = ("authorization", "Bearer secret");
    assert_eq!(status(&[]).await, 401);
    assert_eq!(status(&[("authorization", "Bearer wrong")]).await, 401);
    assert_eq!(status(&[key]).await, 101);
    assert_eq!(status(&[key, ("origin", "https://other.example")]).await, 403);
    assert_eq!(status(&[key, ("origin", &format!("http://{}", server.addr))]).await, 101);
    assert_eq!(status(&[key, ("sec-websocket-version", "12")]).await, 400);
}

#[tokio::test]
async fn a_key_that_is_withdrawn_asks_for_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let keys = ApiKeys::default().with_file(&path).unwrap();
    let options = ServerOptions { keys, reload: Duration::from_millis(10), ..Default::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let mut socket = Socket::with(&server, &[("authorization", "Bearer one")]).await.unwrap();
    socket.ask(json!({})).await;
    std::fs::write(&path, "two\n").unwrap();
    until("the key is refused", async || {
        socket.create(json!({})).await;
        let last = socket.turn().await.pop().unwrap();
        last["error"]["code"] == "invalid_api_key"
    })
    .await;
}

#[tokio::test]
async fn every_message_is_within_the_limits_of_its_caller() {
    let rates = RateLimits { requests: Some(1), ..Default::default() };
    let options = ServerOptions { rates, ..Default::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let mut socket = Socket::open(&server).await;
    socket.ask(json!({})).await;
    socket.create(json!({})).await;
    let refused = socket.next().await.unwrap();
    assert_eq!(refused["error"]["code"], "rate_limit_exceeded");
    let wait: u64 = refused["headers"]["retry-after"].as_str().unwrap().parse().unwrap();
    assert!((30..=60).contains(&wait), "{refused}");

    let rates = RateLimits { concurrent: Some(1), ..Default::default() };
    let options = ServerOptions { rates, ..Default::default() };
    let server = Server::start_with(slow_tokens(20), 4, options).await;
    let (mut one, mut two) = (Socket::open(&server).await, Socket::open(&server).await);
    one.create(json!({})).await;
    one.next().await.unwrap();
    two.refused(json!({}), 429).await;
    one.turn().await;
    until("the place is free", async || {
        two.create(json!({})).await;
        two.turn().await.pop().unwrap()["type"] == "response.completed"
    })
    .await;
}

#[tokio::test]
async fn too_many_messages_at_once_are_refused() {
    let server = Server::start(slow_tokens(40)).await;
    let mut socket = Socket::open(&server).await;
    for _ in 0..80 {
        socket.create(json!({"max_output_tokens": 4})).await;
    }
    let mut refused = 0;
    let mut ended = 0;
    while refused + ended < 80 {
        let last = socket.turn().await.pop().unwrap();
        match last["error"]["code"].as_str() {
            Some(code) => {
                assert_eq!(code, "too_many_messages");
                refused += 1;
            }
            None => ended += 1,
        }
    }
    assert!(refused > 0 && ended >= 64, "{refused} refused, {ended} answered");
}

#[tokio::test]
async fn a_websocket_keeps_its_place_among_the_connections() {
    let options = ServerOptions { connections: 1, ..Default::default() };
    let server = Server::start_with([Act::Say("hello")], 4, options).await;
    let mut socket = Socket::open(&server).await;
    socket.ask(json!({})).await;
    // A client may fail to read why its connection is closed.
    let health = async || {
        let response = server.client.get(server.url("/health")).send().await;
        response.map_or(503, |response| response.status().as_u16())
    };
    assert_eq!(health().await, 503);
    socket.0.close(None).await.unwrap();
    until("the place is free", async || health().await == 200).await;
}

#[tokio::test]
async fn shutdown_finishes_the_response_and_closes_the_connection() {
    let mut server = Server::start(slow_tokens(10)).await;
    let (mut busy, mut idle) = (Socket::open(&server).await, Socket::open(&server).await);
    busy.create(json!({})).await;
    busy.next().await.unwrap();
    server.shut_down();
    idle.closes(CloseCode::Away).await;
    let events = busy.turn().await;
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    busy.closes(CloseCode::Away).await;
    server.ended().await.unwrap();
}

#[tokio::test]
async fn grace_is_bounded_for_websockets_too() {
    let options = ServerOptions { grace: Duration::from_millis(50), ..Default::default() };
    let mut server = Server::start_with([Act::Pause(Duration::from_secs(30))], 4, options).await;
    let mut socket = Socket::open(&server).await;
    socket.create(json!({})).await;
    socket.next().await.unwrap();
    server.shut_down();
    let failed = socket.turn().await.pop().unwrap();
    assert_eq!(failed["type"], "response.failed");
    server.ended().await.unwrap();
}

#[tokio::test]
async fn a_connection_is_open_for_so_long_and_no_longer() {
    let websocket_lifetime = Duration::from_millis(50);
    let options = ServerOptions { websocket_lifetime, ..Default::default() };
    let server = Server::start_with(slow_tokens(10), 4, options).await;
    let mut socket = Socket::open(&server).await;
    socket.ask(json!({})).await;
    assert_eq!(socket.error(400).await["code"], "websocket_connection_limit_reached");
    socket.closes(CloseCode::Policy).await;
}

#[tokio::test]
async fn silence_is_bridged() {
    let options = ServerOptions { ping_interval: Duration::from_millis(20), ..Default::default() };
    let script = [Act::Pause(Duration::from_millis(200)), Act::Say("x")];
    let server = Server::start_with(script, 4, options).await;
    let mut socket = Socket::open(&server).await;
    let ping = tokio::time::timeout(PATIENCE, socket.0.next()).await.unwrap().unwrap().unwrap();
    assert!(ping.is_ping(), "{ping:?}");
    socket.create(json!({})).await;
    let events = socket.turn().await;
    let pings = events.iter().filter(|event| event["type"] == "response.in_progress").count();
    assert!(pings >= 3, "{pings}");
}

#[tokio::test]
async fn what_is_no_websocket_is_refused_as_before() {
    let server = Server::start([]).await;
    assert_eq!(error(server.get(PATH).await, 405).await["code"], "method_not_allowed");
    let document = ok(server.get("/openapi.json").await).await;
    assert!(document["paths"][PATH]["get"]["responses"]["101"].is_object());
}
