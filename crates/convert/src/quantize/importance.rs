//! The importance of the columns of a matrix: the mean squares of its inputs in a calibration.

use anyhow::{Result, bail};
use formats::imatrix::Imatrix;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The contents of an importance file.
#[derive(Debug)]
pub(super) struct Importance {
    path: PathBuf,
    /// Names of the texts.
    pub datasets: Vec<String>,
    /// Number of windows.
    pub windows: usize,
    /// Means of the squared activations of each column, for each matrix of a tensor.
    pub means: HashMap<String, Vec<f32>>,
}

impl Importance {
    /// Reads a file of either format.
    ///
    /// # Errors
    /// If the file cannot be read, or has neither format.
    pub fn open(path: &Path) -> Result<Self> {
        let Imatrix { datasets, chunks: windows, entries, .. } = Imatrix::open(path)?;
        let means = entries.into_iter().map(|(name, entry)| (name, entry.means())).collect();
        Ok(Self { path: path.to_owned(), datasets, windows, means })
    }

    /// The name of the file without its folder.
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether the file has the tensor.
    ///
    /// # Errors
    /// If the values do not fit the shape.
    pub fn covers(&self, name: &str, shape: &[usize]) -> Result<bool> {
        let Some(means) = self.means.get(name) else { return Ok(false) };
        let columns = shape.last().copied().unwrap_or(0);
        let matrices: usize = shape.iter().rev().skip(2).product();
        let fits = |matrices: usize| columns.checked_mul(matrices) == Some(means.len());
        if !fits(1) && !fits(matrices) {
            let (path, found) = (self.path.display(), means.len());
            bail!(
                "{path}: tensor {name}: expected {columns} values for all or each of {matrices} \
                 matrices, found {found}"
            );
        }
        Ok(true)
    }

    /// The importance of the columns of one matrix of a tensor that is covered.
    pub fn columns(&self, name: &str, matrix: usize, columns: usize) -> Option<&[f32]> {
        let means = self.means.get(name)?;
        let matrix = if means.len() == columns { 0 } else { matrix };
        let means = means.get(matrix * columns..)?.get(..columns)?;
        // Without inputs, nothing is known.
        means.iter().any(|mean| *mean > 0.0).then_some(means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::imatrix::ImatrixEntry;

    fn written(sums: &[f32], counts: &[f32]) -> Importance {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("importance.gguf");
        let entry = ImatrixEntry { sums: sums.to_vec(), counts: counts.to_vec() };
        let entries = [("a".to_owned(), entry)].into();
        Imatrix { entries, ..Imatrix::default() }.write(&path).unwrap();
        Importance::open(&path).unwrap()
    }

    #[test]
    fn importance_is_the_mean_of_squares_per_matrix() {
        let read = written(&[2.0, 4.0, 3.0, 0.0], &[2.0, 1.0]);
        assert!(read.covers("a", &[2, 5, 2]).unwrap());
        assert!(!read.covers("b", &[5, 2]).unwrap());
        assert_eq!(read.columns("a", 0, 2).unwrap(), [1.0, 2.0]);
        assert_eq!(read.columns("a", 1, 2).unwrap(), [3.0, 0.0]);
        assert_eq!(read.columns("b", 0, 2), None);
    }

    #[test]
    fn one_count_may_be_that_of_all_matrices() {
        let read = written(&[2.0, 4.0, 0.0, 0.0], &[2.0]);
        assert!(read.covers("a", &[2, 5, 2]).unwrap() && read.covers("a", &[5, 4]).unwrap());
        assert_eq!(read.columns("a", 0, 2).unwrap(), [1.0, 2.0]);
        assert_eq!(read.columns("a", 1, 2), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let read = written(&[1.0, 2.0], &[1.0]);
        assert!(read.covers("a", &[5, 3]).unwrap_err().to_string().contains("expected 3 values"));
    }
}
