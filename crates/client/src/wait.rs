//! How long a call waits.

use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// Time between two questions whether the caller cancels.
const CHECK: Duration = Duration::from_millis(50);

/// How long a call waits for the server, and whether the caller cancels it.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Maximum time for which nothing comes from the server while a call waits. Before the answer
    /// begins, it includes the connection and the sending of the request.
    pub idle: Duration,
    /// Whether the caller cancels. A call that waits asks every 50 ms.
    pub cancelled: &'a dyn Fn() -> bool,
}

impl Wait<'static> {
    /// A wait that nothing cancels.
    pub fn at_most(idle: Duration) -> Self {
        Self { idle, cancelled: &|| false }
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// Why a wait ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    Cancelled,
    Idle,
}

/// The result of `future`, unless the caller cancels or the time is over.
pub(super) async fn within<T>(
    wait: Wait<'_>,
    future: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let (mut future, mut idle) = (std::pin::pin!(future), std::pin::pin!(sleep(wait.idle)));
    loop {
        if (wait.cancelled)() {
            return Err(Interrupted::Cancelled);
        }
        tokio::select! {
            biased;
            result = &mut future => return Ok(result),
            () = &mut idle => return Err(Interrupted::Idle),
            () = sleep(CHECK) => {}
        }
    }
}
