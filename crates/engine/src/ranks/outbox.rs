//! The messages that rank 0 sends to the others, from any thread.

use super::message::{MessageKind, MessageWriter};
use dist::{Comm, Error};
use std::sync::{Arc, Mutex, PoisonError};

/// Sends messages to all other ranks, in one order.
pub(crate) struct Outbox {
    world: Arc<dyn Comm>,
    /// `None` after the last message.
    writer: Mutex<Option<MessageWriter>>,
}

impl Outbox {
    /// Sends from the first rank of `world`.
    pub fn new(world: Arc<dyn Comm>) -> Self {
        Self { world, writer: Mutex::new(Some(MessageWriter::default())) }
    }

    /// Sends the message that `write` writes. Returns whether that was before the last one.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn send(&self, write: impl FnOnce(&mut MessageWriter)) -> Result<bool, Error> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = writer.as_mut() else { return Ok(false) };
        write(writer);
        let mut others = 1..self.world.ranks();
        others.try_for_each(|rank| self.world.send_bytes(rank, &writer.bytes)).map(|()| true)
    }

    /// Sends the last message.
    pub fn end(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut writer) = writer else { return };
        writer.begin(MessageKind::End);
        // A rank that has ended needs no message.
        for rank in 1..self.world.ranks() {
            let _ = self.world.send_bytes(rank, &writer.bytes);
        }
    }
}
