//! Importance matrices: for each weight matrix, the squares of its inputs added up by column.
//!
//! Two forms are read: GGUF, and the older one that llama.cpp writes under names that end in
//! `.dat`. GGUF is written.
//!
//! Invariant: sums and counts are finite and not negative, and every entry has as many sums for
//! each of its counts.

mod gguf;
mod legacy;

use std::path::Path;

use indexmap::IndexMap;

use crate::bytes::map_file;
use crate::error::{Error, Result};

/// All that a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// Names of the texts that were computed.
    pub datasets: Vec<String>,
    /// Windows of text that were computed.
    pub chunks: usize,
    /// Tokens of a window; `None` in the older form.
    pub chunk_size: Option<usize>,
    /// What text was computed, so that work on it can go on; files of others have none.
    pub text_digest: Option<String>,
    /// With what model.
    pub model_digest: Option<String>,
    /// By name of the weight matrix.
    pub entries: IndexMap<String, ImatrixEntry>,
}

/// What went into the products with one tensor, which may be a stack of matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImatrixEntry {
    /// Sums of the squares of each column, one matrix after the other.
    pub sums: Vec<f32>,
    /// Rows added up: one number for all matrices or one for each. In the older form, windows.
    pub counts: Vec<f32>,
}

impl Imatrix {
    /// Reads a file of either form.
    pub fn open(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        match map.starts_with(b"GGUF") {
            true => gguf::open(path),
            false => Self::parse_legacy(&map, path),
        }
    }

    /// Parses the bytes of a file of the older form; `path` names it in errors.
    pub fn parse_legacy(bytes: &[u8], path: &Path) -> Result<Self> {
        legacy::parse(bytes, path)
    }

    /// Writes a GGUF file in place of what is there, once it is whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        gguf::write(self, path)
    }

    fn insert(&mut self, path: &Path, name: &str, entry: ImatrixEntry) -> Result<()> {
        entry.check().map_err(|problem| Error::tensor(path, name, problem))?;
        match self.entries.insert(name.to_owned(), entry) {
            None => Ok(()),
            Some(_) => Err(Error::tensor(path, name, "the name appears twice")),
        }
    }
}

impl ImatrixEntry {
    /// The means of the squares: every sum divided by its count.
    pub fn means(&self) -> Vec<f32> {
        let columns = self.sums.len() / self.counts.len();
        let counts = self.counts.iter().flat_map(|count| std::iter::repeat_n(count, columns));
        self.sums.iter().zip(counts).map(|(sum, count)| sum / count.max(1.0)).collect()
    }

    fn check(&self) -> Result<(), String> {
        let good = |value: &f32| value.is_finite() && *value >= 0.0;
        for (what, values) in [("sums", &self.sums), ("counts", &self.counts)] {
            if let Some(bad) = values.iter().find(|value| !good(value)) {
                return Err(format!("{what}: expected numbers from 0, found {bad}"));
            }
        }
        let (sums, counts) = (self.sums.len(), self.counts.len());
        if sums == 0 || counts == 0 || !sums.is_multiple_of(counts) {
            return Err(format!("expected as many sums for each count, found {sums} for {counts}"));
        }
        Ok(())
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
