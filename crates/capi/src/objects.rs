//! What handles stand for.

use crate::error::CapiError;
use crate::handles::HandleObject;
use crate::ready_fd::ReadyFd;
use calls::{Call, LocalServer, NextChunk, ServerUser, ServerUsers};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Longest time that closing an engine waits for other threads that use it.
const MAX_CLOSING: Duration = Duration::from_secs(60);

/// A loaded model.
#[derive(Debug)]
pub(crate) struct EngineObject {
    /// `None` once it is closed.
    server: Mutex<Option<LocalServer>>,
    /// What holds the engine and ends with it.
    users: ServerUsers,
}

impl HandleObject for EngineObject {
    const KIND: usize = 0;
}

/// An object that belongs to an engine.
pub(crate) trait OfEngine: HandleObject {
    /// The engine.
    fn engine(&self) -> &Arc<EngineObject>;
}

impl EngineObject {
    pub(crate) fn new(server: LocalServer) -> Self {
        Self { server: Mutex::new(Some(server)), users: ServerUsers::default() }
    }

    /// The model with its routes.
    pub(crate) fn server(&self) -> Result<LocalServer, CapiError> {
        lock(&self.server).clone().ok_or(CapiError::Stopped)
    }

    /// The same of an engine that still computes.
    pub(crate) fn running(&self) -> Result<LocalServer, CapiError> {
        let server = self.server()?;
        if server.is_alive() { Ok(server) } else { Err(CapiError::Stopped) }
    }

    /// Has `user` end with the engine.
    pub(crate) fn attach(&self, user: Weak<dyn ServerUser>) -> Result<(), CapiError> {
        if self.users.add(user) { Ok(()) } else { Err(CapiError::Stopped) }
    }

    /// Refuses all that is asked from now on.
    pub(crate) fn stop(&self) {
        lock(&self.server).iter().for_each(LocalServer::stop);
    }

    /// Ends the engine and all that uses it, and waits until its memory is free.
    pub(crate) fn close(&self) -> Result<(), CapiError> {
        let server = lock(&self.server).take().ok_or(CapiError::Stopped)?;
        self.users.end();
        if server.close(MAX_CLOSING) { Ok(()) } else { Err(CapiError::InUse) }
    }
}

/// A call of a route.
#[derive(Debug)]
pub(crate) struct CallObject {
    engine: Arc<EngineObject>,
    pub call: Call,
    /// The descriptor, if it was asked for.
    ready: Mutex<Option<Arc<ReadyFd>>>,
}

impl HandleObject for CallObject {
    const KIND: usize = 1;
}

impl OfEngine for CallObject {
    fn engine(&self) -> &Arc<EngineObject> {
        &self.engine
    }
}

impl CallObject {
    pub(crate) fn new(engine: Arc<EngineObject>, call: Call) -> Self {
        Self { engine, call, ready: Mutex::default() }
    }

    /// Waits for the next chunk.
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Result<Vec<u8>, CapiError> {
        let ready = lock(&self.ready).clone();
        // Before the look at what is there: what comes after it makes the descriptor ready again.
        ready.iter().for_each(|ready| ready.clear());
        let next = self.call.next(timeout);
        if next != NextChunk::TimedOut {
            // There may be more, and the end stays.
            ready.iter().for_each(|ready| ready.set());
        }
        match next {
            NextChunk::Chunk(chunk) => Ok(chunk),
            NextChunk::End => Err(CapiError::Ended),
            NextChunk::Stopped => Err(CapiError::Stopped),
            NextChunk::TimedOut => Err(CapiError::TimedOut),
        }
    }

    /// The descriptor that is readable while [`next`](Self::next) need not wait.
    pub(crate) fn fd(&self) -> Result<i32, CapiError> {
        let mut ready = lock(&self.ready);
        if let Some(ready) = &*ready {
            return Ok(ready.number());
        }
        let made = Arc::new(ReadyFd::new()?);
        let number = made.number();
        *ready = Some(Arc::clone(&made));
        drop(ready);
        self.call.on_ready(Box::new(move || made.set()));
        Ok(number)
    }
}

/// The bytes of a chunk.
#[derive(Debug)]
pub(crate) struct ChunkObject {
    /// With a zero at the end.
    bytes: Vec<u8>,
}

impl HandleObject for ChunkObject {
    const KIND: usize = 2;
}

impl ChunkObject {
    pub(crate) fn new(mut bytes: Vec<u8>) -> Self {
        bytes.push(0);
        Self { bytes }
    }

    /// The bytes without the zero after them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - 1]
    }
}

/// The value of a mutex, whatever happened to a thread that held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
