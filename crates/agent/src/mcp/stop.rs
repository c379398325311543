//! How work on servers ends early: its time is over, or the caller cancels it.

use super::fault::LinkFault;
use std::future::Future;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tokio::sync::watch;

/// Time between two looks whether the caller cancels.
const LOOK: Duration = Duration::from_millis(50);

/// The signal that work is cancelled, as the work sees it.
#[derive(Clone, Debug)]
pub(super) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// The signal, and what sets it.
    pub(super) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits until the work is cancelled, or no one waits for it.
    async fn stopped(&self) {
        let _ = self.0.clone().wait_for(|is_set| *is_set).await;
    }
}

/// `work`, which is dropped after `limit` and when it is cancelled.
pub(super) async fn within<T>(
    work: impl Future<Output = Result<T, LinkFault>>,
    limit: Duration,
    stop: &StopSignal,
) -> Result<T, LinkFault> {
    tokio::select! {
        biased;
        done = work => done,
        () = stop.stopped() => Err(LinkFault::Cancelled),
        () = tokio::time::sleep(limit) => Err(LinkFault::TimedOut),
    }
}

/// The next result of work that runs on another thread; `None` if none comes. Meanwhile
/// `is_cancelled` is asked, and the work is signalled.
pub(super) fn next_result<T>(
    results: &Receiver<T>,
    stop: &watch::Sender<bool>,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<T> {
    loop {
        match results.recv_timeout(LOOK) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_cancelled() {
            stop.send_replace(true);
        }
    }
}
