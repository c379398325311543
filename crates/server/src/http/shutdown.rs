//! The three phases of a server's life, and the signals that end it.

use std::sync::Arc;
use tokio::sync::watch;

/// How far the shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// All requests are taken.
    Serving,
    /// Running requests finish, new ones are refused.
    Draining,
    /// Running requests are ended.
    Closing,
}

/// The phase, shared by all parts of the server.
#[derive(Clone, Debug)]
pub(crate) struct Life(Arc<watch::Sender<Phase>>);

impl Default for Life {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Phase::Serving)))
    }
}

impl Life {
    /// Moves on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits for `phase`, or a later one.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }
}

/// The signals that ask a server to end.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Takes SIGINT and SIGTERM over from the system.
    pub fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C, where there are no signals.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Nothing to prepare.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next Ctrl-C; for ever if it cannot be heard.
    pub async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
