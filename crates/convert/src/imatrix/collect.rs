//! Computes the windows and adds up their sums.

use super::windows::{ROWS, Windows};
use crate::progress::WorkProgress;
use anyhow::{Result, bail};
use backend::InputSums;
use base::Interrupted;
use engine::{Runner, SingleSequence};
use formats::imatrix::{Imatrix, ImatrixEntry};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between writes of the file.
const KEPT: Duration = Duration::from_secs(15);

/// Computes the windows that `sums` lacks. The file `path` holds all of them at the end, and the
/// complete ones after an interruption.
pub(super) fn collect(
    runner: &mut Runner,
    windows: &Windows,
    sums: &mut Imatrix,
    path: &Path,
    progress: &mut dyn WorkProgress,
) -> Result<()> {
    let missing = windows.count - sums.chunks;
    progress.start((missing * windows.context) as u64);
    let mut written = Instant::now();
    for index in sums.chunks..windows.count {
        progress.part(&format!("window {} of {}", index + 1, windows.count));
        if let Err(error) = compute(runner, &windows.get(index), progress) {
            keep(sums, path, &error, progress)?;
            return Err(error);
        }
        add(sums, runner.take_input_sums())?;
        tracing::info!("computed window {} of {}", index + 1, windows.count);
        if written.elapsed() >= KEPT {
            sums.write(path)?;
            written = Instant::now();
        }
    }
    Ok(sums.write(path)?)
}

fn compute(runner: &mut Runner, ids: &[u32], progress: &mut dyn WorkProgress) -> Result<()> {
    let mut session = SingleSequence::new(runner);
    for ids in ids.chunks(ROWS) {
        progress.check()?;
        session.feed_all(ids, |_, _| Ok(()))?;
        progress.advance(ids.len() as u64);
    }
    Ok(())
}

/// Writes the complete windows where `error` is an interruption.
fn keep(
    sums: &Imatrix,
    path: &Path,
    error: &anyhow::Error,
    progress: &mut dyn WorkProgress,
) -> Result<()> {
    if error.is::<Interrupted>() && sums.chunks > 0 {
        sums.write(path)?;
        let (path, windows) = (path.display(), sums.chunks);
        progress.note(&format!("{path} has {windows} windows; the same command resumes from them"));
    }
    Ok(())
}

/// Adds the sums of one window.
fn add(sums: &mut Imatrix, window: Vec<InputSums>) -> Result<()> {
    let rows = (sums.chunks * sums.chunk_size.unwrap_or(0)) as f32;
    let matrices = window.len();
    for InputSums { name, squares, rows: more } in window {
        let none = ImatrixEntry { sums: vec![0.0; squares.len()], counts: vec![0.0; more.len()] };
        let entry = sums.entries.entry(name.clone()).or_insert(none);
        // Each matrix of a stack has a row count of its own.
        let differs = match entry.counts[..] {
            [count] => count != rows || more.len() != 1,
            _ => entry.counts.len() != more.len(),
        };
        if entry.sums.len() != squares.len() || differs {
            let (columns, found) = (squares.len(), entry.sums.len());
            let counts = &entry.counts;
            bail!(
                "tensor {name}: expected {columns} sums of {rows} rows to resume from, found \
                 {found} of {counts:?}"
            );
        }
        for (sum, square) in entry.sums.iter_mut().zip(squares) {
            *sum = (f64::from(*sum) + square) as f32;
        }
        entry.counts.iter_mut().zip(more).for_each(|(count, more)| *count += more as f32);
        if !entry.sums.iter().all(|sum| sum.is_finite()) {
            bail!("tensor {name}: its inputs are NaN, infinite or far too large");
        }
    }
    if sums.entries.len() != matrices {
        let found = sums.entries.len();
        bail!("expected sums of {matrices} matrices to resume from, found {found}");
    }
    sums.chunks += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imatrix::TextIds;

    fn window(name: &str, squares: &[f64]) -> Vec<InputSums> {
        vec![InputSums { name: name.into(), squares: squares.to_vec(), rows: vec![2] }]
    }

    #[test]
    fn windows_share_the_prefix_and_no_token_of_the_text() {
        let text = TextIds { prefix: &[9], ids: &[1, 2, 3, 4, 5] };
        let windows = Windows { text, context: 3, count: 2 };
        assert_eq!([0, 1].map(|index| windows.get(index)), [[9, 1, 2], [9, 3, 4]]);
    }

    #[test]
    fn windows_add_up_in_what_the_file_can_hold() {
        let mut sums = Imatrix { chunk_size: Some(2), ..Imatrix::default() };
        for _ in 0..3 {
            add(&mut sums, window("a", &[0.1, 1e9])).unwrap();
        }
        let tenth = 0.1f64 as f32;
        let fifth = (f64::from(tenth) + 0.1) as f32;
        let sum = (f64::from(fifth) + 0.1) as f32;
        assert_eq!(sums.entries["a"], ImatrixEntry { sums: vec![sum, 3e9], counts: vec![6.0] });
        assert_eq!(sums.chunks, 3);
    }

    #[test]
    fn sums_of_something_else_are_not_added_to() {
        let begun = || {
            let mut sums = Imatrix { chunk_size: Some(2), ..Imatrix::default() };
            add(&mut sums, window("a", &[1.0, 2.0])).unwrap();
            sums
        };
        let check = |more, expected: &str| {
            let error = add(&mut begun(), more).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(window("a", &[1.0]), "tensor a: expected 1 sums of 2 rows");
        check(window("b", &[1.0]), "tensor b");
        check(vec![], "expected sums of 0 matrices");
        check(window("a", &[f64::NAN, 1.0]), "tensor a: its inputs");
    }
}
