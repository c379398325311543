//! The link to a server at an address: a message is a request of HTTP, and its answer is JSON or a
//! stream of events.

use super::fault::LinkFault;
use super::message::{
    Incoming, MAX_MESSAGE_BYTES, MODERN_VERSION, ProtocolEra, RpcOutcome, RpcRequest, cancellation,
    parsed, reply,
};
use super::sse::SseReader;
use super::web::{WebEndpoint, WebResponse};
use hyper::{StatusCode, Uri};
use serde_json::Value;
use std::time::Duration;

/// Most bytes of the number of a session.
const MAX_SESSION_BYTES: usize = 1 << 10;
/// Bytes of a body that an error shows.
const SHOWN_BYTES: usize = 200;
/// Time for messages whose answer is of no use.
const MAX_NOTIFY: Duration = Duration::from_secs(2);

/// The link to an address.
#[derive(Clone, Debug)]
pub(super) struct HttpLink {
    endpoint: WebEndpoint,
    session: Option<String>,
}

impl HttpLink {
    /// The link to `uri`. Nothing is sent.
    ///
    /// # Errors
    ///
    /// If there is no TLS for `https`.
    pub(super) fn new(uri: &Uri) -> Result<Self, LinkFault> {
        Ok(Self { endpoint: WebEndpoint::new(uri)?, session: None })
    }

    /// Sends `request` with the number `id`, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) async fn request(
        &mut self,
        id: u64,
        request: &RpcRequest,
        era: &ProtocolEra,
    ) -> Result<RpcOutcome, LinkFault> {
        let message = request.message(id, era);
        let mut headers: Vec<(&str, &str)> = Vec::new();
        if *era == ProtocolEra::Modern {
            headers.push(("mcp-method", request.method));
            headers.extend(request.headers.iter().map(|(name, value)| (&**name, &**value)));
        }
        let mut response = self.post(&message, era, &headers).await?;
        let status = response.status();
        if status.is_redirection() {
            let to = response.header("location").unwrap_or_default();
            let text =
                format!("it answers {status} with the address `{to}`, which is not followed");
            return Err(LinkFault::Failed(text));
        }
        if status == StatusCode::NOT_FOUND && self.session.take().is_some() {
            return Err(LinkFault::SessionLost);
        }
        if *era == ProtocolEra::Initializing {
            let session = response.header("mcp-session-id");
            self.session =
                session.filter(|it| it.len() <= MAX_SESSION_BYTES).map(ToOwned::to_owned);
        }
        if status.is_success() && is_stream(&response) {
            return self.streamed(&mut response, id, era).await;
        }
        let body = response.body(MAX_MESSAGE_BYTES).await?;
        let answer = parsed(&body).into_iter().find_map(|message| match message {
            Incoming::Answer(Some(number), outcome) if number == id => Some(outcome),
            // An error may lack the number, since the server has perhaps not read it.
            Incoming::Answer(None, outcome) => Some(outcome),
            Incoming::Answer(_, Err(error)) if !status.is_success() => Some(Err(error)),
            _ => None,
        });
        match answer {
            Some(outcome) => Ok(outcome),
            None if status.is_success() => {
                Err(LinkFault::NoMessage(format!("it answers no message: {}", shown(&body))))
            }
            None => Err(LinkFault::NoMessage(format!("it answers {status}: {}", shown(&body)))),
        }
    }

    /// The answer in a stream of events.
    async fn streamed(
        &self,
        response: &mut WebResponse,
        id: u64,
        era: &ProtocolEra,
    ) -> Result<RpcOutcome, LinkFault> {
        let (mut reader, mut events) = (SseReader::default(), Vec::new());
        while let Some(bytes) = response.next_bytes().await? {
            if !reader.add(&bytes, &mut events) {
                let text = format!("a message has over {MAX_MESSAGE_BYTES} bytes");
                return Err(LinkFault::Failed(text));
            }
            for message in events.drain(..).flat_map(|event| parsed(&event)) {
                match message {
                    Incoming::Answer(number, outcome) if number.is_none_or(|it| it == id) => {
                        return Ok(outcome);
                    }
                    Incoming::Request(id, method) if *era != ProtocolEra::Modern => {
                        self.notify(&reply(&id, &method), era).await;
                    }
                    _ => {}
                }
            }
        }
        Err(LinkFault::NoMessage("its answer ends before the result".to_owned()))
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, message: &Value, era: &ProtocolEra) {
        let _ = tokio::time::timeout(MAX_NOTIFY, self.post(message, era, &[])).await;
    }

    /// Says that the request `id` is cancelled, where closing its connection does not.
    pub(super) fn cancel(&self, id: u64, era: &ProtocolEra) {
        if let ProtocolEra::Legacy(_) = era {
            let (link, era) = (self.clone(), era.clone());
            tokio::spawn(async move { link.notify(&cancellation(id), &era).await });
        }
    }

    /// Ends the session, if there is one.
    pub(super) async fn end(&self, era: &ProtocolEra) {
        if let (Some(session), ProtocolEra::Legacy(version)) = (&self.session, era) {
            let headers = [("mcp-session-id", &**session), ("mcp-protocol-version", &**version)];
            let sent = self.endpoint.send("DELETE", &headers, Vec::new());
            let _ = tokio::time::timeout(MAX_NOTIFY, sent).await;
        }
    }

    async fn post(
        &self,
        message: &Value,
        era: &ProtocolEra,
        more: &[(&str, &str)],
    ) -> Result<WebResponse, LinkFault> {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("user-agent", concat!("gannet/", env!("CARGO_PKG_VERSION"))),
        ];
        match era {
            ProtocolEra::Modern => headers.push(("mcp-protocol-version", MODERN_VERSION)),
            ProtocolEra::Initializing => {}
            ProtocolEra::Legacy(version) => {
                headers.push(("mcp-protocol-version", version));
                headers.extend(self.session.as_deref().map(|it| ("mcp-session-id", it)));
            }
        }
        headers.extend_from_slice(more);
        self.endpoint.send("POST", &headers, message.to_string().into_bytes()).await
    }
}

fn is_stream(response: &WebResponse) -> bool {
    let kind = response.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}

/// The beginning of a body.
fn shown(body: &[u8]) -> String {
    match body {
        [] => "nothing".to_owned(),
        body => String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]).into_owned(),
    }
}
