//! The reader's end of a request.

use crate::observe::outcome::Outcome;
use crate::request::fields::Event;
use crate::request::handle::QueueSlot;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// The channel to the caller of a request, and its slot in the queue until it is admitted.
#[derive(Debug)]
pub(super) struct ReaderChannel {
    pub events: Sender<Event>,
    pub queue_slot: Option<QueueSlot>,
}

impl ReaderChannel {
    /// The outcome of a request whose caller dropped the generation.
    pub fn gone(&self) -> Option<Outcome> {
        self.events.is_closed().then_some(Outcome::Cancelled)
    }

    /// Whether the events of a step with up to `max_drafted` drafts fit into the channel.
    pub fn has_room(&self, max_drafted: usize) -> bool {
        // Besides the drafts: a token, the admission, the prompt's log probabilities, and the end.
        self.events.capacity() >= max_drafted + 4
    }

    /// Sends an event. The event fits, because sequences with a full channel are not planned; a
    /// request that is aborted while its channel is full loses its last events.
    pub fn send(&self, event: Event) {
        if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
            tracing::debug!("the reader is too slow for {event:?}");
        }
    }
}
