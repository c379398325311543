//! Frames of streamed answers, written as server-sent events or as lines.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// Asks proxies not to hold events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
/// Asks proxies not to store events.
const UNCACHED: (HeaderName, HeaderValue) =
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));

/// How frames are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// One line of JSON each.
    Lines,
}

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frame {
    /// JSON without a name.
    Data(Value),
    /// JSON under the name of an event.
    Named(String, Value),
    /// A word that is no JSON, such as `[DONE]`.
    Word(&'static str),
    /// What clients skip.
    Comment(&'static str),
}

impl Frame {
    /// `event` under the name that its member `type` holds.
    pub fn typed(event: Value) -> Self {
        Self::Named(event["type"].as_str().unwrap_or_default().to_owned(), event)
    }
}

/// A response whose body is a stream of frames.
pub(crate) fn streaming(framing: Framing, body: Body) -> Response {
    let kind = match framing {
        Framing::Events => "text/event-stream",
        Framing::Lines => "application/x-ndjson",
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
    ([kind, UNBUFFERED, UNCACHED], body).into_response()
}

/// The bytes of a frame. JSON holds no line ends, so that each is one line.
pub(crate) fn written(frame: &Frame, framing: Framing) -> String {
    match (framing, frame) {
        (Framing::Events, Frame::Data(json)) => format!("data: {json}\n\n"),
        (Framing::Events, Frame::Named(name, json)) => format!("event: {name}\ndata: {json}\n\n"),
        (Framing::Events, Frame::Word(word)) => format!("data: {word}\n\n"),
        // An empty line would end an event: readers that know no events without data fail at it.
        (Framing::Events, Frame::Comment(text)) => format!(": {text}\n"),
        (Framing::Lines, Frame::Data(json) | Frame::Named(_, json)) => format!("{json}\n"),
        (Framing::Lines, Frame::Word(_) | Frame::Comment(_)) => String::new(),
    }
}
