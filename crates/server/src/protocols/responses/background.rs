//! Responses that are made without their client: polled, followed or cancelled by their id.

use crate::generate::answer::{Answer, Frame, Framing};
use crate::generate::choices::Choices;
use crate::http::sse;
use crate::protocols::responses::answer::ResponseAnswer;
use crate::protocols::responses::history::Item;
use crate::protocols::responses::object::Response;
use crate::protocols::responses::turns::{ByteCharge, HeldBytes};
use axum::body::{Body, Bytes};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Most events that a follower is sent at once.
const EVENTS_AT_ONCE: usize = 256;
/// What a follower hears when nothing happens.
const SILENCE: &str = ": keep-alive\n\n";

/// A response under way.
#[derive(Debug)]
pub(crate) struct Running {
    /// The response object.
    shown: Mutex<String>,
    cancel: Notify,
    ended: watch::Sender<bool>,
    /// The items that it answers.
    pub asked: Vec<Arc<Item>>,
    /// Its events, if anybody may want them.
    pub log: Option<Arc<Log>>,
}

impl Running {
    /// A response that waits for its beginning.
    pub fn new(response: &Response, asked: Vec<Arc<Item>>, log: Option<Arc<Log>>) -> Self {
        Self {
            shown: Mutex::new(response.json().to_string()),
            cancel: Notify::new(),
            ended: watch::Sender::new(false),
            asked,
            log,
        }
    }

    /// The response object as it is now.
    pub fn json(&self) -> String {
        lock(&self.shown).clone()
    }

    /// Asks it to end, and waits until it has.
    pub async fn cancel(&self) {
        self.cancel.notify_one();
        // The sender lives in self, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn tell(&self, frames: Vec<Frame>) {
        if let Some(log) = &self.log {
            log.push(&frames);
        }
    }

    fn end(&self) {
        if let Some(log) = &self.log {
            log.end();
        }
        self.ended.send_replace(true);
    }
}

/// Makes the response; `answer` keeps it.
pub(crate) async fn run(choices: Choices, mut answer: ResponseAnswer, running: Arc<Running>) {
    running.tell(answer.open());
    *lock(&running.shown) = answer.response().json().to_string();
    running.tell(made(choices, &mut answer, &running).await);
    running.end();
}

/// Tells all events but the last ones, which it gives.
async fn made(mut choices: Choices, answer: &mut ResponseAnswer, running: &Running) -> Vec<Frame> {
    loop {
        let event = tokio::select! {
            biased;
            () = running.cancel.notified() => {
                drop(choices);
                return answer.cancel();
            }
            event = choices.next() => event,
        };
        match event {
            Some(Ok((index, event))) => running.tell(answer.frames(index, event)),
            Some(Err(error)) => return answer.broken(&error),
            None => return answer.close(choices.usage()),
        }
    }
}

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

    fn push(&self, frames: &[Frame]) {
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

    fn end(&self) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these is replaced or added to in one go.
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
