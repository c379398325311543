//! Reading little-endian fields from bytes, each length checked before it is used.

use std::path::Path;

use crate::error::{Error, Result, shown};

/// A position in the bytes of one file.
pub(crate) struct Cursor<'a> {
    pub path: &'a Path,
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, at: 0 }
    }

    pub(crate) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes; `what` names them in the error.
    pub(crate) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return Err(self.ended(len, what));
        }
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    /// Checks that `count` items of at least `item_bytes` each can still follow.
    pub(crate) fn expect_items(&self, count: u64, item_bytes: u64, what: &str) -> Result<()> {
        let needed = count.saturating_mul(item_bytes);
        if needed > self.remaining() {
            let problem = format!(
                "{what} claims {count} entries of at least {item_bytes} bytes each, \
                 but {} bytes are left in the file",
                self.remaining()
            );
            return Err(Error::file(self.path, problem));
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A string: length in bytes, then UTF-8.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'a str> {
        let len = self.u64(what)?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|e| {
            let problem = format!("{} is not valid UTF-8: {e}", shown(what));
            Error::file(self.path, problem)
        })
    }

    fn ended(&self, len: u64, what: &str) -> Error {
        let problem = format!(
            "the file ends inside {}: expected {len} bytes at offset {}, found {}",
            shown(what),
            self.at,
            self.remaining()
        );
        Error::file(self.path, problem)
    }
}
