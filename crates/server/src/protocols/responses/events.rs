//! Events with their numbers.

use crate::http::sse::Frame;
use serde_json::{Map, Value, json};
use std::cell::Cell;

/// Numbers the events of one stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    next: Cell<u64>,
}

impl Events {
    /// The next event, of this type and with these members.
    pub fn event(&self, kind: &'static str, members: Value) -> Frame {
        let mut event = Map::new();
        event.insert("type".into(), kind.into());
        event.insert("sequence_number".into(), json!(self.next.get()));
        self.next.set(self.next.get() + 1);
        if let Value::Object(members) = members {
            event.extend(members);
        }
        Frame::Named(kind, event.into())
    }
}
