//! One API key: its digest and its name.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Most keys. Each request is compared with all of them.
pub(super) const MAX_KEYS: usize = 10_000;

/// Longest key in bytes.
pub(super) const MAX_KEY_BYTES: usize = 512;

/// Why keys were refused. The key itself is never part of it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read.
    #[error("cannot read the API keys of {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A line or an argument is no key.
    #[error("{origin}: {problem}")]
    Invalid {
        /// The file and line, or the number of the argument.
        origin: String,
        /// What was expected and found.
        problem: String,
    },
}

impl KeyError {
    pub(super) fn invalid(origin: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { origin: origin.into(), problem: problem.into() }
    }
}

/// SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// The digest of `key`.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Whether both are the same, in a time that does not depend on where they differ.
    pub(super) fn same(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(other.0).fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(differing) == 0
    }

    /// All of it in hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first digits, by which logs distinguish keys.
    fn label(&self) -> Arc<str> {
        format!("sha256:{}", &self.hex()[..8]).into()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// One of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub digest: Digest,
    /// What it is called in logs.
    pub label: Arc<str>,
}

impl Key {
    /// `key`, under its name if it has one.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub(super) fn new(key: &str, name: Option<&str>) -> Result<Self, String> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            let found = key.len();
            return Err(format!("expected a key of 1 to {MAX_KEY_BYTES} bytes, found {found}"));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("expected a key of printable ASCII characters without spaces".into());
        }
        let digest = Digest::of(key.as_bytes());
        Ok(Self { digest, label: name.map_or_else(|| digest.label(), Arc::from) })
    }
}
