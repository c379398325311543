//! The work on a response that is made in the background: its events, kept for clients that follow
//! it, its cancellation and its end.

use crate::http::sse::{self, Frame, Framing};
use crate::protocols::responses::held_bytes::{ByteCharge, HeldBytes};
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Most events that a follower is sent at once.
const EVENTS_AT_ONCE: usize = 256;
/// What a follower is sent while nothing happens.
const SILENCE: &str = ": keep-alive\n";

/// The work on a response without its client.
#[derive(Debug)]
pub(crate) struct Background {
    /// Its events can be streamed.
    pub streams: bool,
    /// The request, with its seed and without its input, if the work can be done again.
    pub body: Option<String>,
    /// How often a crash has cut the work off.
    pub crashes: AtomicU32,
    /// The work is asked to end.
    pub cancelled: Notify,
    log: watch::Sender<Log>,
}

/// The events of a response. The first one has the number 0 and each the next.
#[derive(Debug)]
struct Log {
    events: Vec<Bytes>,
    /// These are all.
    ended: bool,
    charge: ByteCharge,
}

impl Background {
    /// Work that is yet to begin. Its events are charged to `held`, and kept only if it `streams`.
    pub fn new(streams: bool, body: Option<String>, held: &HeldBytes) -> Self {
        let charge = held.charge(size_of::<Self>() + body.as_ref().map_or(0, String::len));
        let log = watch::Sender::new(Log { events: Vec::new(), ended: false, charge });
        let (crashes, cancelled) = Default::default();
        Self { streams, body, crashes, cancelled, log }
    }

    /// Work that has ended with these events, as [`events`](Self::events) gives them.
    pub fn ended(events: &str, held: &HeldBytes) -> Self {
        let work = Self::new(true, None, held);
        for event in events.split_inclusive("\n\n") {
            work.add(Bytes::copy_from_slice(event.as_bytes()));
        }
        work.end();
        work
    }

    /// All events, if they can be streamed.
    pub fn events(&self) -> Option<String> {
        let log = self.log.borrow();
        let text = |event: &Bytes| String::from_utf8_lossy(event).into_owned();
        self.streams.then(|| log.events.iter().map(text).collect())
    }

    /// Asks the work to end, and waits until it has.
    pub async fn cancel(&self) {
        self.cancelled.notify_one();
        // The sender lives in self, so waiting cannot fail.
        let _ = self.log.subscribe().wait_for(|log| log.ended).await;
    }

    /// Adds events to the log.
    pub fn push(&self, frames: &[Frame]) {
        for frame in frames.iter().filter(|_| self.streams) {
            self.add(Bytes::from(sse::written(frame, Framing::Events)));
        }
    }

    fn add(&self, event: Bytes) {
        self.log.send_modify(|log| {
            log.charge.grow(size_of::<Bytes>() + event.len());
            log.events.push(event);
        });
    }

    /// Marks the work as ended.
    pub fn end(&self) {
        self.log.send_modify(|log| log.ended = true);
    }

    /// The text of events from the number `from` on, with the number after them; `None` when
    /// there are no more.
    async fn after(&self, from: usize) -> Option<(String, usize)> {
        let mut log = self.log.subscribe();
        let log = log.wait_for(|log| log.events.len() > from || log.ended).await.ok()?;
        let events = log.events.get(from..)?;
        let events = &events[..events.len().min(EVENTS_AT_ONCE)];
        let text: String = events.iter().map(|event| String::from_utf8_lossy(event)).collect();
        (!events.is_empty()).then(|| (text, from + events.len()))
    }
}

/// Streams the events of `work` from the number `from` on. Leaving the stream changes nothing.
pub(crate) fn follow(work: Arc<Background>, from: usize, keep_alive: Duration) -> Response {
    let events = stream::unfold((work, from), move |(work, from)| async move {
        let (text, from) = match tokio::time::timeout(keep_alive, work.after(from)).await {
            Ok(next) => next?,
            Err(_) => (SILENCE.to_owned(), from),
        };
        Some((Ok::<Bytes, Infallible>(text.into()), (work, from)))
    });
    sse::streaming(Framing::Events, Body::from_stream(events))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn followers_may_begin_anywhere_and_hear_the_end() {
        let held = HeldBytes::default();
        let log = Background::new(true, None, &held);
        let frame = |number: u64| Frame::typed(json!({ "type": "e", "sequence_number": number }));
        log.push(&[frame(0), frame(1)]);
        let (text, next) = log.after(1).await.unwrap();
        assert!(text.contains(":1}") && !text.contains(":0}"), "{text}");
        log.push(&[frame(2)]);
        assert_eq!(log.after(next).await.unwrap().1, 3);
        log.end();
        assert!(log.after(3).await.is_none() && log.after(1000).await.is_none());
        assert!(held.bytes() > 60);
        let events = log.events().unwrap();
        let kept = Background::ended(&events, &held);
        assert_eq!((kept.events(), kept.after(1).await.unwrap().1), (Some(events), 3));
        drop((log, kept));
        assert_eq!(held.bytes(), 0);
    }
}
