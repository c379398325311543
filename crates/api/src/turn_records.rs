//! Where remembered turns outlive the process.

use std::fmt::Debug;
#[cfg(test)]
use std::sync::Arc;
use std::sync::Weak;

/// Where remembered turns outlive the process. Each record has a key of its own.
pub trait TurnRecords: Debug + Send + Sync {
    /// Calls `visit` with the key and the value of each record, in the order of keys.
    fn read(&self, visit: &mut (dyn FnMut(&[u8], &[u8]) + Send));

    /// Adds a record.
    fn insert(&self, key: &[u8], value: Vec<u8>);

    /// Removes the record `key`, if there is one.
    fn remove(&self, key: &[u8]);
}

/// The record of a turn. It is removed when this is dropped, unless the records were given up
/// before.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    pub number: u64,
    pub records: Weak<dyn TurnRecords>,
}

impl Drop for KeptRecord {
    fn drop(&mut self) {
        if let Some(records) = self.records.upgrade() {
            records.remove(&self.number.to_be_bytes());
        }
    }
}

/// Records of a test, in memory.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct MapOfRecords(pub std::sync::Mutex<std::collections::BTreeMap<Vec<u8>, Vec<u8>>>);

#[cfg(test)]
impl TurnRecords for Arc<MapOfRecords> {
    fn read(&self, visit: &mut (dyn FnMut(&[u8], &[u8]) + Send)) {
        self.0.lock().unwrap().iter().for_each(|(key, value)| visit(key, value));
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) {
        self.0.lock().unwrap().insert(key.to_vec(), value);
    }

    fn remove(&self, key: &[u8]) {
        self.0.lock().unwrap().remove(key);
    }
}
