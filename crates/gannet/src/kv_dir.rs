//! The prefix cache on disk of an engine.

use crate::error::Error;
use engine::{DiskCache, DiskWrite, MIN_TOKENS};
use formats::Checkpoint;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use store::{Store, StoreKey, StoreOptions};

/// A folder in which computed prefixes are kept: they are found again after a restart, and by other
/// processes. Answers have the same bits with and without it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KvDir {
    /// The folder, which is created where there is none.
    pub folder: PathBuf,
    /// Most bytes of the folder.
    pub max_bytes: u64,
    /// Which prefixes are stored.
    pub write: DiskWrite,
    /// Most bytes written each second; 0 for no limit.
    pub write_rate: u64,
    /// Tokens of the shortest prefix that is stored or found.
    pub min_tokens: usize,
    /// The key under which the files are sealed; what is stored under another key, or none, is not
    /// found. Without one, whoever may read the folder can read the prompts.
    pub key: Option<StoreKey>,
    /// The file that remembers digests of weights; without one they are read at every start.
    pub digests: Option<PathBuf>,
}

impl KvDir {
    /// Default of the most bytes of a folder.
    pub const MAX_BYTES: u64 = 16 << 30;

    /// A folder of at most `max_bytes` bytes, with the defaults of everything else.
    pub fn new(folder: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            max_bytes,
            write: DiskWrite::Auto,
            write_rate: 256 << 20,
            min_tokens: MIN_TOKENS,
            key: None,
            digests: None,
        }
    }

    /// The same with all prefixes of full blocks stored, unless nothing is.
    pub fn keeping_all(self) -> Self {
        let write = match self.write {
            DiskWrite::Auto => DiskWrite::All,
            other => other,
        };
        Self { write, min_tokens: 1, ..self }
    }

    /// Opens the folder, and begins to read the weights of `checkpoint` for their digest, before
    /// which nothing is stored or found. A rank that shares the model opens its own.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(&self, checkpoint: &Checkpoint) -> Result<DiskCache, Error> {
        let Self { folder, max_bytes, write, write_rate, min_tokens, key, digests } = self.clone();
        let options = StoreOptions { max_bytes, write_rate, key, ..StoreOptions::new(folder) };
        let store = Arc::new(Store::open(options)?);
        let digest = Arc::new(OnceLock::new());
        let cache = DiskCache { write, min_tokens, ..DiskCache::new(store, Arc::clone(&digest)) };
        let files = checkpoint.weight_files();
        if let Some(known) = digests.as_ref().and_then(|it| formats::known_digest(&files, it)) {
            digest.get_or_init(|| known);
            return Ok(cache);
        }
        let weak = Arc::downgrade(&digest);
        let compute = move || {
            // The engine may end before.
            let is_needed = |_| weak.strong_count() > 0;
            match formats::digest_files(&files, digests.as_deref(), is_needed) {
                Ok(Some(found)) => {
                    if let Some(digest) = weak.upgrade() {
                        digest.get_or_init(|| found);
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!("the cache on disk is off: {error}"),
            }
        };
        let thread = std::thread::Builder::new().name("gannet-digest".into());
        if let Err(error) = thread.spawn(compute) {
            tracing::warn!("the cache on disk is off: {error}");
        }
        Ok(cache)
    }
}
