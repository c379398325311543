//! The state of one forward pass.

use crate::error::Error;
use backend::{Backend, Batch, Buffer};
use dist::{Comm, Split};

/// The state of one forward pass.
pub(crate) struct ForwardPass<'a> {
    pub backend: &'a mut dyn Backend,
    pub batch: &'a Batch,
    /// Whether values are checked to be finite after each stage.
    pub check: bool,
    /// The ranks that share tensors.
    pub slices: Option<&'a dyn Comm>,
}

impl ForwardPass<'_> {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// Sums `x`, `[rows, hidden]`, over all ranks, if `split` says that each rank has a summand.
    ///
    /// # Errors
    /// If a rank fails.
    pub fn sum_over_ranks(&mut self, x: Buffer, split: Split) -> Result<(), Error> {
        if let (Some(comm), Split::Inputs | Split::Experts) = (self.slices, split) {
            self.exchange(x, self.batch.rows(), |values| comm.all_reduce_sum(values))?;
        }
        Ok(())
    }

    /// Changes the first rows of `x`, `[rows, ..]`, by an exchange with other ranks.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub fn exchange<E>(
        &mut self,
        x: Buffer,
        rows: usize,
        mut exchange: impl FnMut(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), Error>
    where
        Error: From<E>,
    {
        let mut result = Ok(());
        self.backend.update(x, rows, &mut |values| result = exchange(values));
        Ok(result?)
    }

    /// With checking on, an error that names `stage` if a row of `x`, `[rows, ..]`, holds NaN or
    /// infinities.
    ///
    /// # Errors
    /// If checking is on and a row holds NaN or infinities: the error names `stage`.
    pub fn check(&mut self, x: Buffer, stage: impl FnOnce() -> String) -> Result<(), Error> {
        match self.first_not_finite(x, self.rows()) {
            Some(row) => Err(Error::NotFinite { row, stage: stage() }),
            None => Ok(()),
        }
    }

    /// With checking on, an error if `logits`, `[logit rows, vocab]`, hold NaN or infinities.
    ///
    /// # Errors
    /// If checking is on and `logits` hold NaN or infinities.
    pub fn check_logits(&mut self, logits: Buffer) -> Result<(), Error> {
        let rows = self.batch.logit_rows();
        match self.first_not_finite(logits, rows.len()) {
            Some(at) => {
                Err(Error::NotFinite { row: rows[at] as usize, stage: "output head".into() })
            }
            None => Ok(()),
        }
    }

    fn first_not_finite(&mut self, x: Buffer, rows: usize) -> Option<usize> {
        if self.check { self.backend.first_not_finite(x, rows) } else { None }
    }
}
