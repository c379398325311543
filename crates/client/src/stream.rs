//! A streamed answer.
//!
//! Invariant: the connection is closed once the answer is complete or has failed.

use super::answer::{AnswerReader, ChatEvent};
use super::error::ClientError;
use super::response::{MAX_ERROR, OpenResponse};
use super::wait::Wait;

/// The answer to a [`ChatQuery`](super::ChatQuery), event by event. To drop it closes the
/// connection, at which a server stops to compute.
///
/// The answer is received while a call waits for it. In between, the server's system and this one
/// hold what fits into their buffers.
#[derive(Debug)]
pub struct ChatStream {
    /// `None` once the answer is complete or has failed.
    response: Option<OpenResponse>,
    reader: AnswerReader,
    /// An error that comes after the events that were read before it.
    failure: Option<ClientError>,
    complete: bool,
}

impl ChatStream {
    /// The stream of a successful response.
    ///
    /// # Errors
    /// If the body is no stream of events.
    pub(super) fn new(mut response: OpenResponse, wait: Wait<'_>) -> Result<Self, ClientError> {
        let content_type = response.content_type().unwrap_or("text/event-stream").to_owned();
        if !content_type.eq_ignore_ascii_case("text/event-stream") {
            let body = response.beginning(MAX_ERROR, wait)?;
            return Err(no_stream(&response, &content_type, &body));
        }
        let reader = AnswerReader::new(response.origin.clone());
        Ok(Self { response: Some(response), reader, failure: None, complete: false })
    }

    /// Waits for the next event. `None` is the end of a complete answer, of which one event was
    /// [`ChatEvent::Finish`].
    ///
    /// # Errors
    /// If the server sends an error, something malformed or too much, the connection ends before
    /// the answer does, nothing comes for too long, or the caller cancels. The stream ends with its
    /// first error, and further calls repeat it.
    ///
    /// # Panics
    /// If the caller is async code.
    pub fn next(&mut self, wait: Wait<'_>) -> Result<Option<ChatEvent>, ClientError> {
        loop {
            if let Some(event) = self.reader.pop() {
                return Ok(Some(event));
            }
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if self.complete {
                return Ok(None);
            }
            match self.receive(wait) {
                Ok(complete) => self.complete = complete,
                Err(failure) => self.failure = Some(failure),
            }
            if self.complete || self.failure.is_some() {
                self.response = None;
            }
        }
    }

    /// Receives the next bytes. Returns whether the answer is complete.
    fn receive(&mut self, wait: Wait<'_>) -> Result<bool, ClientError> {
        let Some(response) = &mut self.response else { return Ok(true) };
        match response.chunk(wait)? {
            Some(bytes) => self.reader.push(&bytes)?,
            None => return self.reader.end().map(|()| true),
        }
        Ok(self.reader.is_done())
    }
}

/// The error of a body that is no stream of events, which may be one of the server.
fn no_stream(response: &OpenResponse, content_type: &str, body: &[u8]) -> ClientError {
    let json: Result<serde_json::Value, _> = serde_json::from_slice(body);
    if json.is_ok_and(|json| !json["error"].is_null()) {
        return response.origin.refused(None, body);
    }
    let found = format!("{content_type}: {}", String::from_utf8_lossy(body).trim());
    response.origin.malformed("an answer of text/event-stream", &found)
}
