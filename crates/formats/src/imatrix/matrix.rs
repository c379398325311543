//! An importance matrix.

use crate::error::{Error, Result};
use indexmap::IndexMap;
use std::path::Path;

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// Names of the texts that were computed.
    pub datasets: Vec<String>,
    /// Windows of text that were computed.
    pub chunks: usize,
    /// Tokens of a window; `None` in the older form.
    pub chunk_size: Option<usize>,
    /// Digest of the text, so that computing can be resumed; only in files that Gannet wrote.
    pub text_digest: Option<String>,
    /// Digest of the model.
    pub model_digest: Option<String>,
    /// By name of the weight matrix.
    pub entries: IndexMap<String, ImatrixEntry>,
}

/// Statistics of the inputs of one tensor, which may be a stack of matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImatrixEntry {
    /// Sums of the squares of each column, one matrix after the other.
    pub sums: Vec<f32>,
    /// Rows added up: one number for all matrices or one for each. In the older form, windows.
    pub counts: Vec<f32>,
}

impl Imatrix {
    pub(super) fn insert(&mut self, path: &Path, name: &str, entry: ImatrixEntry) -> Result<()> {
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

    pub(super) fn check(&self) -> Result<(), String> {
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
