//! The importance of columns: sums of the squares of the inputs of the product with each weight
//! matrix while the model reads a text.
//!
//! The text is cut into windows, each computed separately. Between windows the sums are f32, as in
//! the file, so that work that is continued from the file ends with the same bits as work that was
//! never interrupted.

mod collect;
mod digest;
mod windows;

use crate::progress::WorkProgress;
use anyhow::{Context, Result, bail};
use backend::Mode;
use engine::{LoadOptions, Runner};
use formats::Checkpoint;
use formats::imatrix::Imatrix;
use std::path::Path;
pub use windows::TextIds;
use windows::{ROWS, Windows};

/// Tokens of a window where the model's context is not shorter.
const CONTEXT: usize = 512;
/// Most rows: the file counts them in f32, which is exact so far.
const MAX_ROWS: usize = 1 << 24;

/// How importance is collected.
#[derive(Clone, Debug)]
pub struct ImatrixOptions {
    /// Tokens of a window; `None` for 512, or the model's context if that is shorter.
    pub context: Option<usize>,
    /// Most windows to compute; `None` for all that the text fills.
    pub windows: Option<usize>,
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether to start anew in place of what the output holds.
    pub force: bool,
    /// Name of the text in the file.
    pub dataset: String,
}

/// What the output holds now.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The sums.
    pub sums: Imatrix,
    /// Windows that the output held before.
    pub resumed_at: usize,
}

/// Computes the windows of `text` that the file `out` does not hold yet, and writes it.
///
/// # Errors
///
/// A text that is too short or too long, and a file of other work. After
/// [`Interrupted`](base::Interrupted) the file holds the windows that are complete.
pub fn collect(
    checkpoint: &Checkpoint,
    text: TextIds<'_>,
    out: &Path,
    options: &ImatrixOptions,
    progress: &mut dyn WorkProgress,
) -> Result<Collected> {
    base::check_output(out)?;
    let windows = windows(checkpoint, text, options)?;
    let mut sums = begin(checkpoint, &windows, out, options)?;
    let resumed_at = sums.chunks;
    if resumed_at > 0 {
        let (done, all) = (resumed_at.min(windows.count), windows.count);
        progress.note(&format!("{}: resuming after {done} of {all} windows", out.display()));
    }
    if resumed_at < windows.count {
        let mut runner = load_runner(checkpoint, windows.context, options.threads)?;
        collect::collect(&mut runner, &windows, &mut sums, out, progress)?;
    }
    Ok(Collected { sums, resumed_at })
}

/// Cuts the text. Every window begins as every text does: with the model's first token, which
/// activates it like no other.
fn windows<'a>(
    checkpoint: &Checkpoint,
    text: TextIds<'a>,
    options: &ImatrixOptions,
) -> Result<Windows<'a>> {
    let context = options.context.unwrap_or(checkpoint.config().context.min(CONTEXT));
    let Some(share) = context.checked_sub(text.prefix.len()).filter(|share| *share > 0) else {
        bail!("--ctx: expected at least {} tokens, found {context}", text.prefix.len() + 1);
    };
    let count = (text.ids.len() / share).min(options.windows.unwrap_or(usize::MAX));
    if count == 0 {
        let found = text.ids.len();
        bail!("expected a text of at least {share} tokens, found {found}; --ctx takes fewer");
    }
    if count.checked_mul(context).is_none_or(|rows| rows > MAX_ROWS) {
        let most = MAX_ROWS / context;
        bail!("expected a text of at most {most} windows, found {count}; --windows takes fewer");
    }
    Ok(Windows { text, context, count })
}

/// The sums to add to: none yet, or those of the output.
fn begin(
    checkpoint: &Checkpoint,
    windows: &Windows,
    out: &Path,
    options: &ImatrixOptions,
) -> Result<Imatrix> {
    let new = Imatrix {
        datasets: vec![options.dataset.clone()],
        chunk_size: Some(windows.context),
        text_digest: Some(digest::text(&windows.text)),
        model_digest: Some(digest::model(checkpoint)),
        ..Imatrix::default()
    };
    if options.force || !out.exists() {
        return Ok(new);
    }
    let old =
        Imatrix::open(out).with_context(|| format!("cannot continue from {}", out.display()))?;
    check_same(&old, &new, out)?;
    Ok(old)
}

/// An error that names the first thing in which the output is of other work than this.
fn check_same(old: &Imatrix, new: &Imatrix, path: &Path) -> Result<()> {
    let ours = old.text_digest.is_some() && old.model_digest.is_some();
    let problem = if !ours {
        "expected a file that `gannet imatrix` wrote, found one of another program".into()
    } else if old.chunk_size != new.chunk_size {
        let [new, old] = [new, old].map(|imatrix| imatrix.chunk_size.unwrap_or(0));
        format!("imatrix.chunk_size: expected windows of {new} tokens, found {old}")
    } else if old.text_digest != new.text_digest {
        let name = |imatrix: &Imatrix| imatrix.datasets.join(", ").escape_debug().to_string();
        let [new, old] = [name(new), name(old)];
        format!("expected sums over the text {new}, found those over another text ({old})")
    } else if old.model_digest != new.model_digest {
        "expected sums of this model, found those of another model".into()
    } else {
        return Ok(());
    };
    bail!("{}: {problem}; --force starts anew", path.display())
}

fn load_runner(checkpoint: &Checkpoint, context: usize, threads: usize) -> Result<Runner> {
    let options = LoadOptions {
        threads,
        mode: Mode::Exact,
        context: Some(context),
        chunk: Some(ROWS),
        logit_rows: ROWS,
        parallel: 1,
        ..LoadOptions::default()
    };
    let mut runner = Runner::load(checkpoint, &options)
        .with_context(|| format!("cannot load {}", checkpoint.path().display()))?;
    let generates = runner.check_generates();
    generates.with_context(|| format!("cannot use {}", checkpoint.path().display()))?;
    runner.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    runner.collect_inputs();
    Ok(runner)
}
