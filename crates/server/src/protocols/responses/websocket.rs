//! `/v1/responses` as a WebSocket: responses one after the other on one connection, each asked for
//! by a message `response.create` and sent as the events of a stream.
//!
//! Source: Open Responses, "WebSocket Transport". The connection remembers its last response, so
//! that the next one may continue it though it is not stored. Every message is admitted like a
//! request: its key must still be valid, and its limits are those of the caller. A request that is
//! refused is answered with an `error` event that has a `status`; a response that breaks off ends
//! with `response.failed`.

use crate::generate::delivery::Feed;
use crate::generate::flow::NamedModel;
use crate::http::caller::{Caller, Identity};
use crate::http::error::HttpError;
use crate::http::fallback::wrong_method;
use crate::http::hold::ConnectionHold;
use crate::http::protocol::Protocol;
use crate::http::rate_limit_headers;
use crate::http::request::RequestContext;
use crate::http::shutdown::Phase;
use crate::http::sse::Frame;
use crate::protocols::openai::problem::Problem;
use crate::protocols::responses::answer::ResponseAnswer;
use crate::protocols::responses::call::{RecentResponse, Transport};
use crate::protocols::responses::object::Status;
use crate::protocols::responses::protocol::Responses;
use crate::protocols::responses::routes::{StoreExtension, read};
use crate::protocols::responses::running::begin;
use crate::protocols::responses::store::ResponseStore;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;

/// Most messages that wait while a response is made.
const MAX_WAITING: usize = 64;

/// Responses over a WebSocket.
///
/// Each message of the client is a JSON object: the body of `POST /v1/responses` with the member
/// `type`, which is `response.create`. The server sends the events of the stream as messages.
#[utoipa::path(get, path = "/v1/responses", tag = "OpenAI",
    responses((status = 101, description = "The connection is a WebSocket now."),
        (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem), (status = 405, body = Problem),
        (status = 503, body = Problem)))]
pub(crate) async fn connect(
    context: RequestContext,
    Extension(store): StoreExtension,
    request: Parts,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpError> {
    let Parts { method, uri, headers, extensions, .. } = request;
    if !headers.contains_key(header::UPGRADE) {
        return Err(wrong_method(method, uri).await);
    }
    let upgrade = upgrade
        .map_err(|rejection| HttpError::request(StatusCode::BAD_REQUEST, rejection.body_text()))?;
    let caller = extensions.get().cloned().unwrap_or_else(|| Caller::at(None));
    let hold = extensions.get().cloned();
    // A message that is too large is received, within reason, so that its sender can be told.
    let most = context.app.options.body_limit.saturating_mul(2);
    let upgrade = upgrade.max_message_size(most).max_frame_size(most);
    Ok(upgrade.on_upgrade(move |socket| {
        let ends = Instant::now() + context.app.options.websocket_lifetime;
        let (waiting, recent) = Default::default();
        Session { socket, context, store, caller, hold, ends, waiting, recent }.run()
    }))
}

/// One connection.
struct Session {
    socket: WebSocket,
    context: RequestContext,
    store: Arc<ResponseStore>,
    caller: Caller,
    hold: Option<ConnectionHold>,
    /// When it may be open no longer.
    ends: Instant,
    /// Messages that came while a response was made.
    waiting: VecDeque<Bytes>,
    recent: Option<RecentResponse>,
}

/// What was received.
enum Received {
    Message(Bytes),
    /// Nothing of the protocol's.
    Other,
    /// The client has left or broken the connection.
    End,
}

/// What ends the wait of a connection that is idle.
enum Idle {
    Received(Received),
    Silence,
    /// The server takes no more work.
    Closing,
    /// It was open for long enough.
    Expired,
    GivenUp,
}

/// The end of a connection: nothing more can be sent.
struct Ended;

/// The member of a message that a failed turn needs.
#[derive(Deserialize)]
struct Continued {
    previous_response_id: Option<String>,
}

impl Session {
    /// Serves the connection to its end.
    async fn run(mut self) {
        while let Ok(message) = self.next().await {
            if self.turn(message).await.is_err() {
                return;
            }
        }
    }

    /// The next message.
    async fn next(&mut self) -> Result<Bytes, Ended> {
        loop {
            let waiting = self.waiting.pop_front();
            let life = &self.context.app.life;
            let idle = tokio::select! {
                biased;
                () = given_up(self.hold.as_ref()) => Idle::GivenUp,
                () = life.reached(Phase::Draining) => Idle::Closing,
                () = tokio::time::sleep_until(self.ends) => Idle::Expired,
                message = ready(waiting) => Idle::Received(Received::Message(message)),
                received = receive(&mut self.socket) => Idle::Received(received),
                () = tokio::time::sleep(self.context.app.options.ping_interval) => Idle::Silence,
            };
            match idle {
                Idle::Received(Received::Message(message)) => return Ok(message),
                Idle::Received(Received::Other) => {}
                Idle::Received(Received::End) | Idle::GivenUp => return Err(Ended),
                Idle::Silence => self.send(Message::Ping(Bytes::new())).await?,
                Idle::Closing => {
                    return self.close(close_code::AWAY, "the server is shutting down").await;
                }
                Idle::Expired => {
                    let minutes = self.context.app.options.websocket_lifetime.as_secs() / 60;
                    let message = format!(
                        "a WebSocket may be open for {minutes} minutes; open another one to continue"
                    );
                    let error = HttpError::request(StatusCode::BAD_REQUEST, message);
                    let error = error.with_code("websocket_connection_limit_reached");
                    self.refuse(error.into_response()).await?;
                    return self.close(close_code::POLICY, "open for too long").await;
                }
            }
        }
    }

    /// Answers one message.
    async fn turn(&mut self, message: Bytes) -> Result<(), Ended> {
        let mut begin = Box::pin(self.begin(message.clone()));
        let begun = loop {
            // It may wait for a model to be loaded.
            let silence = self.context.app.options.ping_interval;
            match tokio::time::timeout(silence, &mut begin).await {
                Ok(begun) => break begun,
                Err(_) => self.send(Message::Ping(Bytes::new())).await?,
            }
        };
        match begun {
            Ok(feed) => self.events(feed, &message).await,
            Err(refusal) => {
                self.forget(&message);
                self.refuse(refusal).await
            }
        }
    }

    /// Begins the response that `message` asks for, or says in a response why not.
    fn begin(
        &self,
        message: Bytes,
    ) -> impl Future<Output = Result<Feed<ResponseAnswer>, Response>> + use<> {
        let (context, store, caller) =
            (self.context.clone(), Arc::clone(&self.store), self.caller.identity);
        let transport = Transport::Socket(self.recent.clone());
        begun(context, store, caller, transport, message)
    }

    /// Sends the events of a response, and remembers the response. If the client leaves, the
    /// response is cancelled.
    async fn events(
        &mut self,
        mut feed: Feed<ResponseAnswer>,
        message: &Bytes,
    ) -> Result<(), Ended> {
        loop {
            let frames = tokio::select! {
                () = given_up(self.hold.as_ref()) => return Err(Ended),
                received = receive(&mut self.socket) => {
                    self.keep(received).await?;
                    continue;
                }
                frames = feed.frames() => frames,
            };
            let Some(frames) = frames else { break };
            for frame in frames {
                let (Frame::Named(_, event) | Frame::Data(event)) = frame else { continue };
                self.send(Message::text(event.to_string())).await?;
            }
        }
        let ResponseAnswer { response, turn, .. } = feed.answer;
        match turn {
            Some(turn) if response.status != Status::Failed && self.store.fits() => {
                self.recent = Some(RecentResponse { id: response.id, turn });
            }
            _ => self.forget(message),
        }
        Ok(())
    }

    /// Keeps what was received while a response is made.
    async fn keep(&mut self, received: Received) -> Result<(), Ended> {
        let message = match received {
            Received::Message(message) => message,
            Received::Other => return Ok(()),
            Received::End => return Err(Ended),
        };
        let bytes: usize = self.waiting.iter().map(Bytes::len).sum();
        let most = self.context.app.options.body_limit;
        if self.waiting.len() < MAX_WAITING && bytes + message.len() <= most {
            self.waiting.push_back(message);
            return Ok(());
        }
        let message =
            format!("at most {MAX_WAITING} messages of {most} bytes wait while a response is made");
        let error = HttpError::rate_limited(message).with_code("too_many_messages");
        self.refuse(error.into_response()).await
    }

    /// Forgets the response that `message` was to continue: its turn has failed.
    fn forget(&mut self, message: &[u8]) {
        let failed = serde_json::from_slice(message).ok();
        let failed = failed.and_then(|it: Continued| it.previous_response_id);
        self.recent = self.recent.take().filter(|recent| Some(&recent.id) != failed.as_ref());
    }

    /// Tells the client of an error.
    async fn refuse(&mut self, refusal: Response) -> Result<(), Ended> {
        self.send(Message::text(error_event(refusal).to_string())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Ended> {
        self.socket.send(message).await.map_err(|_| Ended)
    }

    /// Ends the connection.
    async fn close<T>(&mut self, code: u16, reason: &'static str) -> Result<T, Ended> {
        let frame = CloseFrame { code, reason: reason.into() };
        self.send(Message::Close(Some(frame))).await?;
        Err(Ended)
    }
}

/// Begins the response that the `message` of a caller asks for.
async fn begun(
    mut context: RequestContext,
    store: Arc<ResponseStore>,
    caller: Identity,
    transport: Transport,
    message: Bytes,
) -> Result<Feed<ResponseAnswer>, Response> {
    let app = context.app.clone();
    if app.life.phase() > Phase::Serving {
        return Err(HttpError::shutting_down().into_response());
    }
    if let Identity::Key(digest) = &caller
        && !app.options.keys.holds(digest)
    {
        return Err(HttpError::unauthorized().into_response());
    }
    let admission = app.limits.admit(caller);
    let admission = admission.map_err(rate_limit_headers::refusal)?;
    context.id.charge = admission.charge;
    let begun = async {
        let named = NamedModel::read(&app, Body::from(message)).await?;
        let read = read(context, &store, transport, named, |prepared| prepared);
        let (context, (call, prompt)) = read.await?;
        begin(&context, store.clone(), call, prompt, None)
    };
    let (choices, mut answer) = begun.await.map_err(HttpError::into_response)?;
    answer.one_end = true;
    Ok(Feed::new(choices, answer, app.options.ping_interval))
}

/// Waits until the server gives the connection up.
async fn given_up(hold: Option<&ConnectionHold>) {
    match hold {
        Some(hold) => hold.given_up().await,
        None => std::future::pending().await,
    }
}

/// `message`, if there is one.
async fn ready(message: Option<Bytes>) -> Bytes {
    match message {
        Some(message) => message,
        None => std::future::pending().await,
    }
}

/// Waits for what the client sends. The future can be dropped.
async fn receive(socket: &mut WebSocket) -> Received {
    match socket.recv().await {
        Some(Ok(Message::Text(text))) => Received::Message(text.into()),
        Some(Ok(Message::Binary(bytes))) => Received::Message(bytes),
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Received::Other,
        Some(Ok(Message::Close(_))) => {
            // The client's close is answered by reading on.
            while let Some(Ok(_)) = socket.recv().await {}
            Received::End
        }
        None => Received::End,
        Some(Err(error)) => {
            tracing::debug!("a WebSocket broke off: {error}");
            Received::End
        }
    }
}

/// The event that tells of an error, with the headers by which a client knows when to come back.
/// Its code is always a text.
fn error_event(refusal: Response) -> Value {
    let (mut parts, _) = refusal.into_parts();
    let error = parts.extensions.remove().unwrap_or_else(HttpError::internal);
    let mut detail = Responses::json(&error)["error"].take();
    if detail["code"].is_null() {
        detail["code"] = detail["type"].clone();
    }
    let mut event = json!({ "type": "error", "status": parts.status.as_u16(), "error": detail });
    let told = rate_limit_headers::headers().chain([header::RETRY_AFTER]);
    let told = told.filter_map(|name| {
        let value = parts.headers.get(&name)?.to_str().ok()?;
        Some((name.to_string(), Value::from(value)))
    });
    let told: Map<String, Value> = told.collect();
    if !told.is_empty() {
        event["headers"] = told.into();
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_status_and_a_code() {
        let error = HttpError::rate_limited("slow down").into_response();
        let expected = json!({"type": "error", "status": 429, "error": {
            "message": "slow down", "type": "rate_limit_error", "param": null,
            "code": "rate_limit_error"}, "headers": {"retry-after": "1"}});
        assert_eq!(error_event(error), expected);
        let error = HttpError::invalid("input", "wrong").with_code("x").into_response();
        let error = error_event(error);
        assert_eq!((&error["error"]["code"], &error["status"]), (&json!("x"), &json!(400)));
        assert_eq!(error.get("headers"), None);
    }
}
