//! Connections that are no longer HTTP, such as WebSockets, and keep their place among the
//! connections of the server.

use std::convert::Infallible;
use tokio::sync::mpsc;

/// Holds the place of a connection; an extension of its requests. The connection counts as open
/// until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHold(mpsc::Sender<Infallible>);

/// The connection that is held.
#[derive(Debug)]
pub(crate) struct HeldConnection(mpsc::Receiver<Infallible>);

impl ConnectionHold {
    /// A hold on a connection.
    pub fn new() -> (Self, HeldConnection) {
        let (sender, receiver) = mpsc::channel(1);
        (Self(sender), HeldConnection(receiver))
    }

    /// Waits until the server has given the connection up.
    pub async fn given_up(&self) {
        self.0.closed().await;
    }
}

impl HeldConnection {
    /// Waits until nothing holds the connection.
    pub async fn released(mut self) {
        while self.0.recv().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_connection_lasts_as_long_as_its_last_hold() {
        let (hold, connection) = ConnectionHold::new();
        let other = hold.clone();
        drop(hold);
        let released = tokio::spawn(connection.released());
        tokio::time::sleep(SOON).await;
        assert!(!released.is_finished());
        drop(other);
        released.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_is_given_up_says_so() {
        let (hold, connection) = ConnectionHold::new();
        assert!(timeout(SOON, hold.given_up()).await.is_err());
        drop(connection);
        hold.given_up().await;
    }
}
