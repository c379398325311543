//! A finished response that is kept.

use crate::protocols::responses::log::Log;
use crate::protocols::responses::turns::{ByteCharge, HeldBytes, StoredTurn};
use std::sync::Arc;

/// The response object, and the turn that the next response continues.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    /// The response object.
    pub json: String,
    pub turn: Arc<StoredTurn>,
    /// It was made in the background.
    pub background: bool,
    /// The events of one that was made there.
    pub log: Option<Arc<Log>>,
    _charge: ByteCharge,
}

impl StoredResponse {
    /// Keeps these, charged to `held`.
    pub fn new(json: String, turn: Arc<StoredTurn>, held: &HeldBytes) -> Self {
        let charge = held.charge(size_of::<Self>() + json.len());
        Self { json, turn, background: false, log: None, _charge: charge }
    }

    /// One that was made in the background, with these events.
    pub fn in_background(self, log: Option<Arc<Log>>) -> Self {
        Self { background: true, log, ..self }
    }
}
