//! The events of a response that is made in the background, kept for its followers.

use crate::http::sse::{self, Frame, Framing};
use crate::protocols::responses::turns::{ByteCharge, HeldBytes};
use axum::body::{Body, Bytes};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Most events that a follower is sent at once.
const EVENTS_AT_ONCE: usize = 256;
/// What a follower hears when nothing happens.
const SILENCE: &str = ": keep-alive\n\n";

/// The events of a response. The first one has the number 0 and each the next.
#[derive(Debug)]
pub(crate) struct Log {
    written: Mutex<Written>,
    /// How many there are, and whether these are all.
    state: watch::Sender<(usize, bool)>,
}

#[derive(Debug)]
struct Written {
    events: Vec<Bytes>,
    charge: ByteCharge,
}

impl Log {
    /// An empty one, which is charged to `held` as it grows.
    pub fn new(held: &HeldBytes) -> Self {
        let written = Written { events: Vec::new(), charge: held.charge(size_of::<Self>()) };
        Self { written: Mutex::new(written), state: watch::Sender::new((0, false)) }
    }

    /// Adds events.
    pub fn push(&self, frames: &[Frame]) {
        let mut written = lock(&self.written);
        for frame in frames {
            let event = Bytes::from(sse::written(frame, Framing::Events));
            written.charge.grow(size_of::<Bytes>() + event.len());
            written.events.push(event);
        }
        let count = written.events.len();
        drop(written);
        self.state.send_modify(|state| state.0 = count);
    }

    /// Says that these are all.
    pub fn end(&self) {
        self.state.send_modify(|state| state.1 = true);
    }

    /// The text of events from the number `from` on, with the number after them; `None` when
    /// there are no more.
    async fn after(&self, from: usize) -> Option<(String, usize)> {
        let mut state = self.state.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = state.wait_for(|(count, ended)| *count > from || *ended).await;
        let written = lock(&self.written);
        let events = written.events.get(from..)?;
        let events = &events[..events.len().min(EVENTS_AT_ONCE)];
        let text: String = events.iter().map(|event| String::from_utf8_lossy(event)).collect();
        (!events.is_empty()).then(|| (text, from + events.len()))
    }
}

/// Streams the events of `log` from the number `from` on. Leaving the stream changes nothing.
pub(crate) fn follow(log: Arc<Log>, from: usize, keep_alive: Duration) -> axum::response::Response {
    let events = stream::unfold((log, from), move |(log, from)| async move {
        let (text, from) = match tokio::time::timeout(keep_alive, log.after(from)).await {
            Ok(next) => next?,
            Err(_) => (SILENCE.to_owned(), from),
        };
        Some((Ok::<Bytes, Infallible>(text.into()), (log, from)))
    });
    sse::streaming(Framing::Events, Body::from_stream(events))
}

/// Locks what is replaced or added to in one go.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn followers_may_begin_anywhere_and_hear_the_end() {
        let held = HeldBytes::default();
        let log = Log::new(&held);
        let frame = |number: u64| Frame::Named("e", json!({ "sequence_number": number }));
        log.push(&[frame(0), frame(1)]);
        let (text, next) = log.after(1).await.unwrap();
        assert!(text.contains(":1}") && !text.contains(":0}"), "{text}");
        log.push(&[frame(2)]);
        assert_eq!(log.after(next).await.unwrap().1, 3);
        log.end();
        assert!(log.after(3).await.is_none() && log.after(1000).await.is_none());
        assert!(held.bytes() > 60);
        drop(log);
        assert_eq!(held.bytes(), 0);
    }
}
