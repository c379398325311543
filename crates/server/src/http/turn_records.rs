//! Turns that called tools, as records of the state file.

use api::TurnRecords;
use state::{Change, StateDir};

/// The table of the turns.
const TABLE: &str = "turns_with_calls";

/// The records of a state file.
#[derive(Debug)]
pub(crate) struct StateTurns(pub StateDir);

impl TurnRecords for StateTurns {
    fn read(&self, visit: &mut (dyn FnMut(&[u8], &[u8]) + Send)) {
        self.0.read(TABLE, visit);
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) {
        self.0.write([Change::insert(TABLE, key, value)]);
    }

    fn remove(&self, key: &[u8]) {
        self.0.write([Change::remove(TABLE, key)]);
    }
}
