//! What the threads of a store share.

use crate::buffers::Buffers;
use crate::disk::Disk;
use crate::index::Index;
use crate::jobs::{ReadJob, WriteJob};
use crate::key::StoreKey;
use crate::layout::ExtentName;
use crate::queue::Queue;
use crate::stats::Counters;
use base::Name;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Name of the file that is locked to change what the folder holds.
pub(crate) const LOCK_FILE: &str = "lock";

/// Name of the file that describes a root.
pub(crate) const ABOUT_FILE: &str = "about.json";

/// What the threads of a store share.
pub(crate) struct StoreState {
    pub disk: Arc<dyn Disk>,
    pub folder: PathBuf,
    /// The key under which extents are sealed, if they are.
    pub key: Option<StoreKey>,
    pub max_bytes: u64,
    pub write_rate: u64,
    pub locked_index: Mutex<Index>,
    pub counters: Counters,
    pub reads: Queue<ReadJob>,
    pub writes: Queue<WriteJob>,
    /// Memory of what is written.
    pub outgoing: Arc<Buffers>,
    /// Memory of what is read.
    pub incoming: Arc<Buffers>,
    /// Bytes a second that were read; 0 before the first.
    pub read_rate: AtomicU64,
}

impl StoreState {
    pub fn index(&self) -> MutexGuard<'_, Index> {
        self.locked_index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands for a name on disk.
    pub fn hidden(&self, name: Name) -> Name {
        self.key.as_ref().map_or(name, |key| key.hide(name))
    }

    pub fn root_folder(&self, root: Name) -> PathBuf {
        self.folder.join(root.to_string())
    }

    pub fn path(&self, root: Name, name: &ExtentName) -> PathBuf {
        self.root_folder(root).join(name.path())
    }

    /// Adds a reading of `bytes` to the measured rate.
    pub fn measure_read(&self, bytes: usize, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-6)) as u64;
        let before = self.read_rate.load(Ordering::Relaxed);
        let smoothed = if before == 0 { rate } else { (3 * before + rate) / 4 };
        self.read_rate.store(smoothed.max(1), Ordering::Relaxed);
    }
}
