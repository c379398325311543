//! Contents of files that are kept by their digests, so that a change can be taken back.
//!
//! Invariant: contents are checked against their digest when they are read, since commands that are
//! not confined may write where the tools keep them.

use crate::files::{new_file, open_regular};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A folder of contents, which need not exist before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFiles(PathBuf);

impl KeptFiles {
    /// The contents in `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Those of the tools, in their folder `kept`.
    pub fn of_tools(kept: &Path) -> Self {
        Self(kept.join("before"))
    }

    /// The digest of `bytes`: SHA-256 in hexadecimal.
    pub fn digest(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Keeps `bytes`; gives their digest.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = Self::digest(bytes);
        if self.read(&digest).is_ok() {
            return Ok(digest);
        }
        fs::create_dir_all(&self.0)?;
        let mut file = new_file(&self.0.join(&digest))?;
        file.write_all(bytes)?;
        file.sync_data()?;
        Ok(digest)
    }

    /// The contents with this digest.
    ///
    /// # Errors
    /// If there are none, or they are others.
    pub fn read(&self, digest: &str) -> io::Result<Vec<u8>> {
        if !digest.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(io::Error::other("expected a digest"));
        }
        let mut bytes = Vec::new();
        open_regular(&self.0.join(digest))?.take(1 << 30).read_to_end(&mut bytes)?;
        match Self::digest(&bytes) == digest {
            true => Ok(bytes),
            false => Err(io::Error::other("the contents are not those of their digest")),
        }
    }

    /// Keeps the contents with this digest in `to` as well.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub fn copy(&self, digest: &str, to: &Self) -> io::Result<()> {
        to.keep(&self.read(digest)?).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_kept_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|it| KeptFiles::new(folder.path().join(it)));
        let digest = one.keep(b"text").unwrap();
        assert_eq!(one.keep(b"text").unwrap(), digest);
        assert!(two.read(&digest).is_err());
        one.copy(&digest, &two).unwrap();
        fs::write(folder.path().join("one").join(&digest), "other").unwrap();
        let problem = one.read(&digest).unwrap_err().to_string();
        assert_eq!(problem, "the contents are not those of their digest");
        assert_eq!(two.read(&digest).unwrap(), b"text");
        // What was changed is written again; links are not followed out.
        one.keep(b"text").unwrap();
        assert_eq!(one.read(&digest).unwrap(), b"text");
        assert!(one.read("../two").is_err());
    }
}
