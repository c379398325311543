//! The three phases of a server's life, and the signals that end it.

use std::sync::Arc;
use tokio::sync::watch;

/// The phases of a server, in their order.
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

/// Signals of the system. By default there are none, and the next one never comes.
#[cfg(unix)]
#[derive(Debug, Default)]
pub(crate) struct Signals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    /// The signals that ask the server to end: SIGINT and SIGTERM.
    pub fn ends() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(vec![signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    /// The signal that asks the server to read its files again: SIGHUP.
    pub fn hangups() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(vec![signal(SignalKind::hangup())?]))
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        use std::task::Poll;
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Ctrl-C, where there are no signals. By default it never comes.
#[cfg(not(unix))]
#[derive(Debug, Default)]
pub(crate) struct Signals(bool);

#[cfg(not(unix))]
impl Signals {
    /// Ctrl-C, which asks the server to end.
    pub fn ends() -> std::io::Result<Self> {
        Ok(Self(true))
    }

    /// Nothing asks the server to read its files again.
    pub fn hangups() -> std::io::Result<Self> {
        Ok(Self(false))
    }

    /// Waits for the next Ctrl-C; for ever if the system does not report it.
    pub async fn next(&mut self) {
        if !self.0 || tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
