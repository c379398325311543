//! The Agent Client Protocol, version 1, on standard input and output: an editor shows the work and
//! asks the user (<https://agentclientprotocol.com>).
//!
//! - `wire` has the messages, `outbox` writes them, `params` reads what they ask for.
//! - `dispatch` takes messages in their order and never waits for work, so that work can be
//!   cancelled; each session works on a thread of its own (`session`).
//! - `editor_user` shows the work of a session as updates, `questions` asks.
//!
//! Invariant: standard output has messages of the protocol alone, one a line, and what the client
//! sends ends in an answer, an error of the protocol or the end of the program.

mod call_shown;
mod changes;
mod dispatch;
mod editor_user;
mod modes;
mod outbox;
mod params;
mod program_end;
mod questions;
mod replay;
mod session;
mod session_handle;
mod shared;
mod wire;

use super::maker::AgentMaker;
use crate::exit::SilentExit;
use anyhow::Result;
use dispatch::Dispatcher;
use outbox::Outbox;
use program_end::ProgramEnd;
pub(super) use shared::AcpSettings;
use shared::AcpShared;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

/// Time between two looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(50);

/// Serves the client at standard input and output with agents of `maker` until the input ends, the
/// output is closed or a signal comes.
///
/// # Errors
///
/// If the system gives no thread, the output is closed, or a signal has ended the work.
pub(super) fn serve(maker: &AgentMaker<'_>, settings: AcpSettings<'_>) -> Result<()> {
    let end = ProgramEnd::new();
    let (outbox, writer) = Outbox::open(&end)?;
    let messages = wire::receive()?;
    let shared = AcpShared::new(maker, settings, outbox, end.clone());
    thread::scope(|scope| {
        let mut dispatcher = Dispatcher::new(&shared, scope);
        while !end.has_come() {
            match messages.recv_timeout(LOOK) {
                Ok(message) => dispatcher.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        shared.end();
    });
    drop(shared);
    writer.finish()?;
    match end.is_signal() {
        true => Err(SilentExit(crate::interrupt::code()).into()),
        false => Ok(()),
    }
}
