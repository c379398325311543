//! The residual stream between stages: from each to the next, and wanted rows from the last to the
//! first, which has the output head.
//!
//! Of a stage's slices, which all have the same stream, each sends a part of the rows to the slice
//! of its number, and the slices that receive them gather all. A stage of one rank that cannot
//! compute some of the rows sends an empty message and its error in place of the stream; the other
//! stages hand it on.

use crate::error::Error;
use crate::pass::ForwardPass;
use crate::ranks::Ranks;
use backend::{Batch, Buffer};
use dist::{Comm, Shard};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What passes between stages, and memory for it, so that a step allocates nothing.
#[derive(Default)]
pub(crate) struct StageLink {
    work: Mutex<LinkWork>,
}

#[derive(Default)]
struct LinkWork {
    /// Rows in sequence: of this slice, and of all slices.
    own: Vec<f32>,
    all: Vec<f32>,
}

/// What the last stage sends to the first where a step outputs no row.
const DONE: [f32; 1] = [0.0];

impl StageLink {
    /// Receives the stream `x`, `[rows, width]`, from the stage before; nothing on the first.
    ///
    /// # Errors
    /// The error of a stage about rows; if a rank has ended.
    pub fn receive(
        &self,
        pass: &mut ForwardPass<'_>,
        ranks: &Ranks,
        x: Buffer,
    ) -> Result<(), Error> {
        let stages = ranks.stages.as_deref().filter(|stages| stages.rank() > 0);
        let Some(stages) = stages else { return Ok(()) };
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, from) = (pass.rows(), stages.rank() - 1);
        pass.exchange(x, rows, |values| work.receive(ranks, (stages, from), rows, values))
    }

    /// Sends the stream `x`, `[rows, width]`, which was fetched, to the stage after this one, and
    /// from the last its wanted rows to the first.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn send(&self, pass: &mut ForwardPass<'_>, ranks: &Ranks, x: Buffer) -> Result<(), Error> {
        let Some(stages) = ranks.stages.as_deref() else { return Ok(()) };
        let (shard, rows, batch) = (ranks.slice()?, pass.rows(), pass.batch);
        let values = pass.backend.read(x, rows);
        let width = values.len() / rows;
        let next = stages.rank() + 1;
        if next < stages.ranks() {
            return Ok(send(stages, next, &values[own_values(shard, rows, width)])?);
        }
        let wanted = wanted(batch);
        if wanted == 0 {
            // The first learns that the step is computed.
            return Ok(send(stages, 0, &DONE[..usize::from(shard.rank() == 0)])?);
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.all.clear();
        for rows in batch.wanted_rows() {
            work.all.extend_from_slice(&values[rows.start * width..rows.end * width]);
        }
        Ok(send(stages, 0, &work.all[own_values(shard, wanted, width)])?)
    }

    /// Waits for the last stage, and receives the wanted rows of the stream `x`, `[rows, width]`,
    /// on the first of several stages.
    ///
    /// # Errors
    /// The error of a stage about rows; if a rank has ended.
    pub fn receive_wanted(
        &self,
        pass: &mut ForwardPass<'_>,
        ranks: &Ranks,
        x: Buffer,
    ) -> Result<(), Error> {
        let stages = ranks.stages.as_deref().filter(|stages| stages.rank() == 0);
        let Some(stages) = stages else { return Ok(()) };
        let (rows, batch) = (pass.rows(), pass.batch);
        let (last, wanted) = (stages.ranks() - 1, wanted(batch));
        if wanted == 0 {
            return match ranks.slice()?.rank() {
                0 => receive(stages, last, &mut [0.0; DONE.len()]),
                _ => Ok(()),
            };
        }
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        pass.exchange(x, rows, |values| {
            let width = values.len() / rows;
            let mut all = std::mem::take(&mut work.all);
            all.resize(wanted * width, 0.0);
            let received = work.receive(ranks, (stages, last), wanted, &mut all);
            let mut rest = &all[..];
            for rows in batch.wanted_rows() {
                let (now, later) = rest.split_at(rows.len() * width);
                values[rows.start * width..rows.end * width].copy_from_slice(now);
                rest = later;
            }
            work.all = all;
            received
        })
    }
}

impl LinkWork {
    /// Receives so many rows of all slices from a stage.
    fn receive(
        &mut self,
        ranks: &Ranks,
        (stages, from): (&dyn Comm, usize),
        rows: usize,
        all: &mut [f32],
    ) -> Result<(), Error> {
        let Some(slices) = ranks.slices.as_deref() else { return receive(stages, from, all) };
        self.own.resize(own_values(ranks.slice()?, rows, all.len() / rows).len(), 0.0);
        if !self.own.is_empty() {
            stages.receive(from, &mut self.own)?;
        }
        Ok(slices.all_gather(&self.own, all)?)
    }
}

/// Sends values, if there are some.
fn send(stages: &dyn Comm, to: usize, values: &[f32]) -> Result<(), dist::Error> {
    if values.is_empty() { Ok(()) } else { stages.send(to, values) }
}

/// Receives the values of a stage, or its error about rows.
fn receive(stages: &dyn Comm, from: usize, values: &mut [f32]) -> Result<(), Error> {
    match stages.receive(from, values) {
        Err(dist::Error::Length { found: 0, .. }) => {
            let mut bytes = Vec::new();
            stages.receive_bytes(from, &mut bytes)?;
            Err(read_failure(&bytes))
        }
        received => Ok(received?),
    }
}

/// Sends an error about rows to the next stage, from the last to the first, in place of the stream.
/// Returns whether the error is about rows, and the stage has one rank: the others of several would
/// still compute.
///
/// # Errors
/// If a rank has ended.
pub(crate) fn send_failure(ranks: &Ranks, error: &Error) -> Result<bool, Error> {
    let (Some(stages), Some(rows), None) = (&ranks.stages, error.rows(), &ranks.slices) else {
        return Ok(false);
    };
    let mut bytes = (rows.len() as u32).to_le_bytes().to_vec();
    bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
    bytes.extend_from_slice(error.to_string().as_bytes());
    let next = (stages.rank() + 1) % stages.ranks();
    stages.send(next, &[])?;
    stages.send_bytes(next, &bytes)?;
    Ok(true)
}

/// The error that [`send_failure`] has sent: the number of rows, the rows, and the text.
fn read_failure(bytes: &[u8]) -> Error {
    let parts = bytes.split_first_chunk().and_then(|(count, rest)| {
        let count = u32::from_le_bytes(*count) as usize;
        rest.split_at_checked(count.checked_mul(4)?)
    });
    let Some((rows, problem)) = parts else {
        return Error::Config("a stage sent an error that is malformed".into());
    };
    let rows = rows.as_chunks().0.iter().map(|row| u32::from_le_bytes(*row)).collect();
    Error::Rows { rows, problem: String::from_utf8_lossy(problem).into_owned() }
}

/// The values of a slice's part of so many rows.
fn own_values(shard: Shard, rows: usize, width: usize) -> Range<usize> {
    let own = shard.part(rows, 1);
    own.start * width..own.end * width
}

/// Number of rows that output hidden states or logits.
fn wanted(batch: &Batch) -> usize {
    batch.wanted_rows().map(|rows| rows.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dist::Local;
    use std::sync::Arc;

    #[test]
    fn errors_about_rows_travel_and_others_do_not() {
        let failed = || Error::NotFinite { row: 7, stage: "layer 3".into() };
        let ranks = Local::group(2).into_iter().map(|rank| {
            std::thread::spawn(move || {
                let ranks = Ranks::grid(Arc::new(rank), 1, ("", &[])).unwrap();
                let stages = ranks.stages.clone().unwrap();
                if stages.rank() == 0 {
                    assert!(send_failure(&ranks, &failed()).unwrap());
                    assert!(!send_failure(&ranks, &Error::Config("other".into())).unwrap());
                    stages.send(1, &[5.0; 3]).unwrap();
                    return;
                }
                let mut values = [0.0; 3];
                let error = receive(&*stages, 0, &mut values).unwrap_err();
                assert_eq!(
                    (error.rows(), error.to_string()),
                    (Some(vec![7]), failed().to_string())
                );
                receive(&*stages, 0, &mut values).unwrap();
                assert_eq!(values, [5.0; 3]);
            })
        });
        ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
        for malformed in [&b""[..], &[1, 0, 0], &[2, 0, 0, 0, 1, 1, 1, 1], &[255; 9]] {
            assert!(read_failure(malformed).to_string().contains("malformed"), "{malformed:?}");
        }
    }
}
