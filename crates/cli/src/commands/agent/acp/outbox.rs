//! Messages to the client, which one thread writes.
//!
//! Invariant: once the program ends, no thread waits for a client that does not read.

use super::program_end::ProgramEnd;
use super::wire::AcpError;
use crate::output;
use anyhow::Result;
use serde_json::{Value, json};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// Most messages that wait to be written.
const MAX_WAITING: usize = 256;
/// Time between two looks whether another message can wait.
const LOOK: Duration = Duration::from_millis(5);
/// Time for the last messages to be written.
const LAST: Duration = Duration::from_secs(5);

/// Takes messages to the client.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    messages: SyncSender<Value>,
    end: ProgramEnd,
}

/// What comes of the thread that writes.
#[derive(Debug)]
pub(super) struct OutboxWriter(Receiver<Result<()>>);

impl Outbox {
    /// Starts to write to standard output. An output that is closed ends the program.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn open(end: &ProgramEnd) -> io::Result<(Self, OutboxWriter)> {
        let (messages, waiting) = sync_channel::<Value>(MAX_WAITING);
        let (sender, done) = channel();
        let closed = end.clone();
        thread::Builder::new().name("gannet-output".to_owned()).spawn(move || {
            let written = waiting.iter().try_for_each(|message| output::lines([message]));
            if written.is_err() {
                closed.come();
            }
            // Nobody waits for a client that reads too late.
            let _ = sender.send(written);
        })?;
        Ok((Self { messages, end: end.clone() }, OutboxWriter(done)))
    }

    /// Sends the answer to the request `id`.
    pub fn reply(&self, id: &Value, result: Result<Value, AcpError>) {
        self.send(match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.to_json()}),
        });
    }

    /// Sends an update of a session.
    pub fn update(&self, session: &str, update: Value) {
        let params = json!({"sessionId": session, "update": update});
        self.send(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Sends a request.
    pub fn request(&self, id: u64, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Adds a message, once fewer than the most wait; when the program ends, it is dropped instead.
    fn send(&self, mut message: Value) {
        loop {
            match self.messages.try_send(message) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(_)) if self.end.has_come() => return,
                Err(TrySendError::Full(back)) => message = back,
            }
            thread::sleep(LOOK);
        }
    }
}

impl OutboxWriter {
    /// Waits a while until all is written, once no outbox is left.
    ///
    /// # Errors
    ///
    /// If the output is closed.
    pub fn finish(self) -> Result<()> {
        self.0.recv_timeout(LAST).unwrap_or(Ok(()))
    }
}
