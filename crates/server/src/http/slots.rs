//! Slots: the tokens that were computed last under a number that clients choose.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most files that are written and read at once. Each takes a thread that waits for the disk.
const MAX_FILES: usize = 4;

/// The slots of a server whose prefixes can be taken to files.
#[derive(Debug)]
pub(crate) struct SlotTable {
    folder: PathBuf,
    slots: Mutex<Vec<SlotTokens>>,
    /// Permits to write or read a file.
    files: Arc<Semaphore>,
}

/// What was computed last under a slot's number.
#[derive(Clone, Debug, Default)]
struct SlotTokens {
    tokens: Vec<u32>,
    /// Whether the next request computes its prompt anew.
    is_erased: bool,
}

impl SlotTable {
    /// `count` slots, whose files are in a folder.
    pub fn new(folder: PathBuf, count: usize) -> Self {
        let slots = Mutex::new(vec![SlotTokens::default(); count]);
        Self { folder, slots, files: Arc::new(Semaphore::new(MAX_FILES)) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SlotTokens>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of their files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A permit to write or read a file; `None` while there are too many.
    pub fn file_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.files).try_acquire_owned().ok()
    }

    /// Whether there is a slot of this number.
    pub fn has(&self, id: usize) -> bool {
        id < self.lock().len()
    }

    /// The tokens of a slot; none of one that does not exist.
    pub fn tokens(&self, id: usize) -> Vec<u32> {
        self.lock().get(id).map(|slot| slot.tokens.clone()).unwrap_or_default()
    }

    /// Begins a request of a slot; returns whether it computes its prompt anew.
    pub fn begin(&self, id: usize) -> bool {
        self.lock().get_mut(id).is_some_and(|slot| std::mem::take(&mut slot.is_erased))
    }

    /// Gives a slot the tokens that were computed last.
    pub fn set(&self, id: usize, tokens: Vec<u32>) {
        if let Some(slot) = self.lock().get_mut(id) {
            *slot = SlotTokens { tokens, is_erased: false };
        }
    }

    /// Forgets the tokens of a slot; returns how many they were. Its next request computes its
    /// prompt anew.
    pub fn erase(&self, id: usize) -> usize {
        let Some(slot) = self.lock().get_mut(id).map(|slot| {
            std::mem::replace(slot, SlotTokens { tokens: Vec::new(), is_erased: true })
        }) else {
            return 0;
        };
        slot.tokens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_its_last_tokens_until_it_is_erased() {
        let slots = SlotTable::new("folder".into(), 2);
        assert!(slots.has(1) && !slots.has(2));
        slots.set(1, vec![1, 2]);
        slots.set(1, vec![3]);
        slots.set(2, vec![4]);
        assert_eq!([0, 1, 2].map(|id| slots.tokens(id)), [vec![], vec![3], vec![]]);
        assert!(!slots.begin(1));
        assert_eq!([1, 1, 2].map(|id| slots.erase(id)), [1, 0, 0]);
        assert_eq!([1, 1, 0, 2].map(|id| slots.begin(id)), [true, false, false, false]);
    }
}
