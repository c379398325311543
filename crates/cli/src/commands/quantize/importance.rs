//! How much each column of a matrix matters: the activations that a calibration summed up.
//!
//! Follows the GGUF form that llama.cpp writes: `NAME.in_sum2` has the squared activations of
//! every column, per matrix of a stack, and `NAME.counts` how many were summed.

use anyhow::{Context, Result, bail};
use formats::TensorView;
use formats::gguf::GgufFile;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// All that a file says.
#[derive(Debug)]
pub(super) struct Importance {
    path: PathBuf,
    tensors: HashMap<String, Mean>,
}

/// Means of the squared activations of one tensor.
#[derive(Debug)]
struct Mean {
    values: Vec<f32>,
    /// Matrices that have means of their own.
    matrices: usize,
}

impl Importance {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let kind = file.metadata().opt_text("general.type")?.unwrap_or("model");
        if kind != "imatrix" {
            let path = path.display();
            bail!("{path}: general.type: expected imatrix, found {}", kind.escape_default());
        }
        let by_name: HashMap<&str, &TensorView> =
            file.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut tensors = HashMap::new();
        for (name, sums) in &by_name {
            let Some(name) = name.strip_suffix(SUMS) else { continue };
            let counts = by_name.get(format!("{name}{COUNTS}").as_str()).copied();
            let counts = counts.with_context(|| {
                format!("{}: tensor {name}{COUNTS}: expected beside {SUMS}", path.display())
            })?;
            tensors.insert(name.to_owned(), Mean::of(sums, counts)?);
        }
        Ok(Self { path: path.to_owned(), tensors })
    }

    /// The file's own name.
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Tensors spoken of.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the tensor is spoken of. An error where what is said does not fit its shape.
    pub fn covers(&self, name: &str, shape: &[usize]) -> Result<bool> {
        let Some(mean) = self.tensors.get(name) else { return Ok(false) };
        let columns = shape.last().copied().unwrap_or(0);
        let matrices: usize = shape.iter().rev().skip(2).product();
        let fits = mean.matrices == 1 || mean.matrices == matrices;
        if !fits || columns.checked_mul(mean.matrices) != Some(mean.values.len()) {
            let (path, found, stack) = (self.path.display(), mean.values.len(), mean.matrices);
            bail!(
                "{path}: tensor {name}{SUMS}: expected {columns} values for each of {matrices} \
                 matrices, found {found} for {stack}"
            );
        }
        Ok(true)
    }

    /// The importance of the columns of one matrix of a tensor that is covered.
    pub fn columns(&self, name: &str, matrix: usize, columns: usize) -> Option<&[f32]> {
        let mean = self.tensors.get(name)?;
        let matrix = if mean.matrices == 1 { 0 } else { matrix };
        let values = mean.values.get(matrix * columns..)?.get(..columns)?;
        // Where nothing came along, nothing is known.
        values.iter().any(|value| *value > 0.0).then_some(values)
    }
}

impl Mean {
    fn of(sums: &TensorView, counts: &TensorView) -> Result<Self> {
        let wrong = |tensor: &TensorView, problem: &str| {
            let (path, name) = (tensor.path().display(), tensor.name.escape_debug());
            anyhow::anyhow!("{path}: tensor {name}: {problem}")
        };
        let (mut values, numbers) = (sums.to_f32()?, counts.to_f32()?);
        for (tensor, values) in [(sums, &values), (counts, &numbers)] {
            if !values.iter().all(|value| value.is_finite() && *value >= 0.0) {
                return Err(wrong(tensor, "expected numbers from 0, found others"));
            }
        }
        if numbers.is_empty() || values.is_empty() || !values.len().is_multiple_of(numbers.len()) {
            let problem = format!("expected one per matrix of {SUMS}, found {}", numbers.len());
            return Err(wrong(counts, &problem));
        }
        let columns = values.len() / numbers.len();
        for (values, number) in values.chunks_exact_mut(columns).zip(&numbers) {
            values.iter_mut().for_each(|value| *value /= number.max(1.0));
        }
        Ok(Self { values, matrices: numbers.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::gguf::{GgufWriter, Value};
    use kernels::quant;

    fn written(kind: &str, sums: &[f32], counts: &[f32]) -> Result<Importance> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("importance.gguf");
        let mut writer = GgufWriter::new();
        writer.set("general.type", Value::String(kind.into()));
        writer.plan("a.in_sum2", &quant::F32, &[counts.len(), sums.len() / counts.len()]).unwrap();
        writer.plan("a.counts", &quant::F32, &[counts.len(), 1]).unwrap();
        let mut stream = writer.create(&path).unwrap();
        for value in sums.iter().chain(counts) {
            stream.write(&value.to_le_bytes()).unwrap();
        }
        stream.finish().unwrap();
        Importance::open(&path)
    }

    #[test]
    fn importance_is_the_mean_of_squares_per_matrix() {
        let read = written("imatrix", &[2.0, 4.0, 3.0, 0.0], &[2.0, 1.0]).unwrap();
        assert!(read.covers("a", &[2, 5, 2]).unwrap());
        assert!(!read.covers("b", &[5, 2]).unwrap());
        assert_eq!(read.columns("a", 0, 2).unwrap(), [1.0, 2.0]);
        assert_eq!(read.columns("a", 1, 2).unwrap(), [3.0, 0.0]);
        assert_eq!(read.columns("b", 0, 2), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let read = written("imatrix", &[1.0, 2.0], &[1.0]).unwrap();
        assert!(read.covers("a", &[5, 3]).unwrap_err().to_string().contains("expected 3 values"));
        let error = |kind, sums: &[f32]| written(kind, sums, &[1.0]).unwrap_err().to_string();
        assert!(error("model", &[1.0]).contains("expected imatrix, found model"));
        assert!(error("imatrix", &[-1.0]).contains("numbers from 0"));
    }
}
