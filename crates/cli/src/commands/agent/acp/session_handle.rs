//! A session as the messages of the client see it: its thread has the agent.

use super::wire::AcpError;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a session does for a request.
#[derive(Debug)]
pub(super) enum SessionWork {
    /// Works on a prompt.
    Prompt { request: Value, text: String },
    /// Shows what was said, in the folder of the session.
    Load { request: Value, folder: PathBuf },
    /// Changes the mode.
    SetMode { request: Value, mode: &'static str },
    /// Ends.
    Close { request: Value },
}

/// Whether a session works.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    is_working: AtomicBool,
    is_cancelled: AtomicBool,
}

/// Gives work to the thread of a session, which ends with the last handle.
#[derive(Debug)]
pub(super) struct SessionHandle {
    work: Sender<SessionWork>,
    state: Arc<WorkState>,
}

impl WorkState {
    /// Whether the work is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    /// Ends the work that [`SessionHandle::begin`] began.
    pub fn finish(&self) {
        self.is_working.store(false, Ordering::Release);
    }
}

impl SessionHandle {
    /// A handle with what the thread takes.
    pub fn new() -> (Self, Receiver<SessionWork>, Arc<WorkState>) {
        let (work, receiver) = channel();
        let state = Arc::new(WorkState::default());
        (Self { work, state: Arc::clone(&state) }, receiver, state)
    }

    /// Begins work beside which there is no other.
    ///
    /// # Errors
    ///
    /// If the session works.
    pub fn begin(&self, work: SessionWork) -> Result<(), AcpError> {
        if self.state.is_working.swap(true, Ordering::AcqRel) {
            return Err(AcpError::invalid_request("the session works on another prompt"));
        }
        self.state.is_cancelled.store(false, Ordering::Release);
        self.queue(work)
    }

    /// Adds work, which begins when the session works on nothing else.
    ///
    /// # Errors
    ///
    /// If the session has ended.
    pub fn queue(&self, work: SessionWork) -> Result<(), AcpError> {
        self.work.send(work).map_err(|_| AcpError::internal("the session has ended"))
    }

    /// Stops the work.
    pub fn cancel(&self) {
        self.state.is_cancelled.store(true, Ordering::Release);
    }
}
