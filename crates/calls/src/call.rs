//! A call and its response.
//!
//! Invariant: a response holds at most [`MAX_WAITING`] chunks that no reader has taken; its body is
//! not read further until one is, so that a slow reader slows its own sequence only.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Maximum number of chunks that no reader has taken.
const MAX_WAITING: usize = 16;

/// What the body of a response gives next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextChunk {
    /// The whole body, or the data of one event of a stream. The end mark `[DONE]` of OpenAI's
    /// streams is left out: [`End`](Self::End) says it.
    Chunk(Vec<u8>),
    /// The body is complete, or was cancelled.
    End,
    /// The server was closed before the end of the body.
    Stopped,
    /// Nothing came in time.
    TimedOut,
}

/// A call of a route, from [`LocalServer::call`](crate::LocalServer::call). Threads may use it at
/// the same time; each chunk goes to one of them. Dropping it cancels the call, and so does
/// dropping the last clone of its server.
#[derive(Debug)]
pub struct Call {
    response: Arc<SharedResponse>,
    task: AbortHandle,
}

impl Call {
    pub(crate) fn new(response: Arc<SharedResponse>, task: AbortHandle) -> Self {
        Self { response, task }
    }

    /// Returns the HTTP status of the response, once it is known.
    pub fn status(&self) -> Option<u16> {
        self.response.lock().status
    }

    /// Waits for the HTTP status, at most for `timeout`, or without a limit. `None` if it is not
    /// known by then, or the call was cancelled before it was.
    pub fn wait_status(&self, timeout: Option<Duration>) -> Option<u16> {
        let known = |state: &mut ResponseState| match state.status {
            None if state.ending.is_none() => None,
            status => Some(status),
        };
        self.response.wait(timeout, known).flatten()
    }

    /// Whether the body is a stream, with a chunk for each event, and not one whole chunk. `false`
    /// until the status is known.
    pub fn is_stream(&self) -> bool {
        self.response.lock().is_stream
    }

    /// Whether the body has ended, was cancelled, or its server was closed: nothing is added to the
    /// chunks that are still to be taken.
    pub fn has_ended(&self) -> bool {
        self.response.lock().ending.is_some()
    }

    /// Waits for the next chunk of the body, at most for `timeout`, or without a limit. With a
    /// timeout of zero it does not wait.
    pub fn next(&self, timeout: Option<Duration>) -> NextChunk {
        let ready = |state: &mut ResponseState| match state.chunks.pop_front() {
            Some(chunk) => Some(NextChunk::Chunk(chunk)),
            None => state.ending.map(|ending| match ending {
                BodyEnd::Complete | BodyEnd::Cancelled => NextChunk::End,
                BodyEnd::Stopped => NextChunk::Stopped,
            }),
        };
        let next = self.response.wait(timeout, ready).unwrap_or(NextChunk::TimedOut);
        if matches!(next, NextChunk::Chunk(_)) {
            self.response.space.add_permits(1);
        }
        next
    }

    /// Cancels the call, from any thread: its sequence ends within a step, and [`next`](Self::next)
    /// gives [`NextChunk::End`] from now on.
    pub fn cancel(&self) {
        self.task.abort();
        self.response.end(BodyEnd::Cancelled);
    }

    /// Sets what is called whenever [`next`](Self::next) gives something without waiting, instead
    /// of what was set before: once for each chunk and once at the end, from a thread that all
    /// calls share, which it must not block; at once from this thread if something is there
    /// already; and from the thread that cancels. It may call methods of the call.
    pub fn on_ready(&self, notify: Box<dyn Fn() + Send + Sync>) {
        let notify: Arc<dyn Fn() + Send + Sync> = Arc::from(notify);
        let is_ready = {
            let mut state = self.response.lock();
            state.listener = Some(Listener(Arc::clone(&notify)));
            state.ending.is_some() || !state.chunks.is_empty()
        };
        if is_ready {
            notify();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How the body of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Cancelled,
    /// With its server, or as a body that breaks off.
    Stopped,
}

/// The response of a call, shared by its reader and the task that writes it.
#[derive(Debug)]
pub(crate) struct SharedResponse {
    state: Mutex<ResponseState>,
    changed: Condvar,
    /// A permit for each further chunk.
    space: Semaphore,
}

#[derive(Debug, Default)]
struct ResponseState {
    status: Option<u16>,
    is_stream: bool,
    chunks: VecDeque<Vec<u8>>,
    ending: Option<BodyEnd>,
    listener: Option<Listener>,
}

#[derive(Clone)]
struct Listener(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl SharedResponse {
    pub fn new() -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { state, changed, space: Semaphore::new(MAX_WAITING) }
    }

    /// Sets the status and the kind of the body.
    pub fn begin(&self, status: u16, is_stream: bool) {
        let mut state = self.lock();
        (state.status, state.is_stream) = (Some(status), is_stream);
        drop(state);
        self.changed.notify_all();
    }

    /// Adds a chunk as soon as fewer than [`MAX_WAITING`] wait.
    pub async fn push(&self, chunk: Vec<u8>) {
        // The semaphore is never closed.
        if let Ok(permit) = self.space.acquire().await {
            permit.forget();
        }
        let mut state = self.lock();
        if state.ending.is_none() {
            state.chunks.push_back(chunk);
            self.announce(state);
        }
    }

    /// Ends the body, if it has not ended yet. What no reader has taken of a cancelled one is
    /// discarded.
    pub fn end(&self, ending: BodyEnd) {
        let mut state = self.lock();
        if ending == BodyEnd::Cancelled {
            state.chunks.clear();
        }
        if state.ending.is_none() {
            state.ending = Some(ending);
            self.announce(state);
        }
    }

    /// Tells readers that something is there.
    fn announce(&self, state: MutexGuard<ResponseState>) {
        let listener = state.listener.clone();
        drop(state);
        self.changed.notify_all();
        if let Some(Listener(notify)) = listener {
            notify();
        }
    }

    /// Waits until `ready` gives something.
    fn wait<T>(
        &self,
        timeout: Option<Duration>,
        ready: impl Fn(&mut ResponseState) -> Option<T>,
    ) -> Option<T> {
        // Times beyond what the clock counts are no limit.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.lock();
        loop {
            if let Some(found) = ready(&mut state) {
                return Some(found);
            }
            state = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, ResponseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
