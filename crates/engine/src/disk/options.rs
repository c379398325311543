//! The store under the prefix cache of an engine, and which blocks it gets.

use std::sync::{Arc, OnceLock};
use store::Store;

/// Which computed blocks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskWrite {
    /// What is read faster than it is computed.
    #[default]
    Auto,
    /// All.
    All,
    /// None: what is stored is found, and nothing is added.
    Off,
}

impl DiskWrite {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Auto, "auto"), (Self::All, "all"), (Self::Off, "off")];
}

impl std::str::FromStr for DiskWrite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, other)| *other == name);
        let wrong = || format!("expected auto, all or off, found {name:?}");
        found.map(|(write, _)| write).ok_or_else(wrong)
    }
}

impl std::fmt::Display for DiskWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::ALL[*self as usize].1)
    }
}

/// A store under the prefix cache of an engine.
#[derive(Clone)]
pub struct DiskCache {
    /// The store.
    pub store: Arc<Store>,
    /// Digest of all bytes of the weights, once it is known. Until then nothing is stored or found.
    pub digest: Arc<OnceLock<String>>,
    /// Which blocks are stored.
    pub write: DiskWrite,
    /// Tokens of the shortest prefix that is stored or found.
    pub min_tokens: usize,
}

impl DiskCache {
    /// A store, with the defaults of everything else.
    pub fn new(store: Arc<Store>, digest: Arc<OnceLock<String>>) -> Self {
        Self { store, digest, write: DiskWrite::Auto, min_tokens: MIN_TOKENS }
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { write, min_tokens, .. } = self;
        write!(f, "DiskCache({write}, at least {min_tokens} tokens)")
    }
}

/// Default of the shortest prefix that is stored or found.
pub const MIN_TOKENS: usize = 256;
