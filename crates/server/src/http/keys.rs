//! The API keys that the server accepts.
//!
//! Invariant: of a key only its SHA-256 and its name are kept. Logs have the name, or the first
//! digits of the digest.

mod file;
mod key;

use crate::http::reload::Reload;
pub use key::KeyError;
use key::MAX_KEYS;
pub(crate) use key::{Digest, Key};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The keys that clients may send: fixed ones, and the keys of a file that may change. A server
/// without either needs no key. Clones share the keys.
#[derive(Clone, Debug, Default)]
pub struct ApiKeys {
    fixed: Vec<Key>,
    file: Option<PathBuf>,
    all: Arc<RwLock<Arc<Vec<Key>>>>,
}

impl ApiKeys {
    /// These keys, which have no names.
    ///
    /// # Errors
    /// If a key is not allowed, or there are too many.
    pub fn new(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, KeyError> {
        let key = |(index, key): (usize, _)| {
            let wrong = |problem| KeyError::invalid(format!("API key {}", index + 1), problem);
            Key::new(AsRef::<str>::as_ref(&key), None).map_err(wrong)
        };
        let fixed: Vec<Key> = keys.into_iter().enumerate().map(key).collect::<Result<_, _>>()?;
        if fixed.len() > MAX_KEYS {
            let problem = format!("expected at most {MAX_KEYS}, found {}", fixed.len());
            return Err(KeyError::invalid("API keys", problem));
        }
        let all = Arc::new(RwLock::new(Arc::new(fixed.clone())));
        Ok(Self { fixed, file: None, all })
    }

    /// These keys and those of the file at `path`, which must have some.
    ///
    /// # Errors
    /// If the file cannot be read, has no keys, or a line is not a key.
    pub fn with_file(mut self, path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        self.file = Some(path.into());
        self.read()?;
        Ok(self)
    }

    /// Reads the file anew. Where it is broken, the keys stay as they are.
    fn read(&self) -> Result<usize, KeyError> {
        let Some(path) = &self.file else { return Ok(self.fixed.len()) };
        let mut all = self.fixed.clone();
        all.extend(file::read(path)?);
        let count = all.len();
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(count)
    }

    fn all(&self) -> Arc<Vec<Key>> {
        Arc::clone(&self.all.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether requests need no key. A file whose keys have all gone admits no request.
    pub fn is_open(&self) -> bool {
        self.fixed.is_empty() && self.file.is_none()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    /// What the keys are called in logs.
    pub fn labels(&self) -> Vec<String> {
        self.all().iter().map(|key| key.label.to_string()).collect()
    }

    /// Whether the key of this digest is one of the keys now.
    pub(crate) fn holds(&self, digest: &Digest) -> bool {
        self.all().iter().any(|key| key.digest.same(digest))
    }

    /// The key that `given` is. All are compared, to the end.
    pub(crate) fn find(&self, given: &[u8]) -> Option<Key> {
        let digest = Digest::of(given);
        let all = self.all();
        let matching = all.iter().filter(|key| key.digest.same(&digest));
        matching.fold(None, |found, key| found.or(Some(key))).cloned()
    }
}

impl Reload for ApiKeys {
    fn files(&self) -> Vec<&Path> {
        self.file.as_deref().into_iter().collect()
    }

    fn reload(&self) -> Result<String, Box<dyn Error>> {
        let count = self.read()?;
        Ok(format!("API keys, of which there are {count} now"))
    }
}

/// Reads `text` as a file of keys. For fuzzing.
///
/// # Errors
/// If a line is not a key, or there are none.
#[doc(hidden)]
pub fn check_key_file(text: &str) -> Result<usize, KeyError> {
    file::parse(text, Path::new("keys")).map(|keys| keys.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[&str], given: &str, expected: bool) {
        let keys = ApiKeys::new(keys).unwrap();
        assert_eq!(keys.find(given.as_bytes()).is_some(), expected, "{given:?}");
    }

    #[test]
    fn only_a_whole_key_opens() {
        check(&["secret"], "secret", true);
        check(&["other", "secret", "third"], "third", true);
        check(&["secret"], "secre", false);
        check(&["secret"], "secret2", false);
        check(&["secret"], "Secret", false);
        check(&["secret"], "", false);
        check(&[], "secret", false);
    }

    #[test]
    fn a_key_is_shown_as_its_digest() {
        let keys = ApiKeys::new(["secret"]).unwrap();
        assert_eq!(keys.labels(), ["sha256:2bb80d53"]);
        assert!(!format!("{keys:?}").contains("secret\""), "{keys:?}");
    }

    #[test]
    fn what_no_header_can_carry_is_no_key() {
        for key in ["", "two words", "k\u{e4}y", "a\nb", &"x".repeat(513)] {
            let error = ApiKeys::new([key]).unwrap_err().to_string();
            assert!(error.starts_with("API key 1: expected"), "{error}");
        }
    }

    #[test]
    fn a_broken_file_leaves_the_keys_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "one\n").unwrap();
        let keys = ApiKeys::new(["fixed"]).unwrap().with_file(&path).unwrap();
        std::fs::write(&path, "two words\n").unwrap();
        assert!(keys.reload().is_err());
        assert!(keys.find(b"one").is_some());
        std::fs::write(&path, "second\n").unwrap();
        keys.reload().unwrap();
        let found = [b"one".as_slice(), b"second", b"fixed"].map(|key| keys.find(key).is_some());
        assert_eq!(found, [false, true, true]);
    }
}
