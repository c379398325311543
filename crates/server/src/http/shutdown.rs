//! The three phases of a server's life.

use tokio::sync::watch;

/// The phases of a server, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// All requests are taken.
    #[default]
    Serving,
    /// Running requests finish, new ones are refused.
    Draining,
    /// Running requests are ended.
    Closing,
}

/// The phase, shared by all parts of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life(watch::Sender<Phase>);

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
