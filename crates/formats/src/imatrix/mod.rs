//! Importance matrices: for each weight matrix, the squares of its inputs added up by column.
//!
//! Two forms are read: GGUF, and the older one that llama.cpp writes under names that end in
//! `.dat`. GGUF is written.
//!
//! Invariant: sums and counts are finite and not negative, and every entry has as many sums for
//! each of its counts.

mod gguf;
mod legacy;
mod matrix;

pub use matrix::{Imatrix, ImatrixEntry};

use std::path::Path;

use crate::bytes::map_file;
use crate::error::Result;

impl Imatrix {
    /// Reads a file of either form.
    ///
    /// # Errors
    /// If the file is unreadable or invalid.
    pub fn open(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        match map.starts_with(b"GGUF") {
            true => gguf::open(path),
            false => Self::parse_legacy(&map, path),
        }
    }

    /// Parses the bytes of a file of the older form; `path` names it in errors.
    ///
    /// # Errors
    /// If the bytes do not follow the form.
    pub fn parse_legacy(bytes: &[u8], path: &Path) -> Result<Self> {
        legacy::parse(bytes, path)
    }

    /// Writes a GGUF file, which replaces an existing one once it is complete.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        gguf::write(self, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_sums_by_count_of_their_matrix() {
        let entry = ImatrixEntry { sums: vec![2.0, 4.0, 3.0, 0.0], counts: vec![2.0, 0.0] };
        assert_eq!(entry.means(), [1.0, 2.0, 3.0, 0.0]);
        let shared = ImatrixEntry { counts: vec![4.0], ..entry };
        assert_eq!(shared.means(), [0.5, 1.0, 0.75, 0.0]);
    }

    #[test]
    fn entries_that_make_no_sense_are_refused() {
        let problem = |sums: &[f32], counts: &[f32]| {
            ImatrixEntry { sums: sums.to_vec(), counts: counts.to_vec() }.check().unwrap_err()
        };
        assert!(problem(&[1.0, -1.0], &[1.0]).contains("found -1"));
        assert!(problem(&[1.0], &[f32::NAN]).contains("counts: expected numbers from 0"));
        assert!(problem(&[1.0; 3], &[1.0; 2]).contains("found 3 for 2"));
        assert!(problem(&[], &[]).contains("found 0 for 0"));
    }
}
