//! `gannet perplexity`: how well a model predicts a text.
//!
//! The text is cut into windows of the context; every token but the first of a window is scored
//! given those before it in the window. With a stride, windows overlap and only the tokens that
//! no earlier window has scored count, so that each has a longer past.

use crate::args::{LoadArgs, ModelArgs};
use crate::input::Source;
use crate::interrupt::Watch;
use crate::{load, output, progress};
use anyhow::{Context, Result, bail};
use engine::{LoadOptions, Runner, Session};
use formats::{Checkpoint, OpenOptions};
use indicatif::ProgressBar;
use serde_json::json;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use text::EncodeOptions;

/// Context where none is asked for and the model's is longer.
const CONTEXT: usize = 2048;
/// Positions whose logits are computed at once.
const ROWS: usize = 64;

/// Measure how well a model predicts a text
///
/// Prints the mean negative log likelihood per token (natural logarithm) and its exponential, the
/// perplexity. The text is read in windows of the context (--ctx, at most 2048 where left out);
/// the first token of a window is not scored.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the text; `-` or left out: standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Tokens from the start of one window to the start of the next; left out: a whole window
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// What the scored tokens add up to.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    nll: f64,
    tokens: usize,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let source = Source { file: args.file.as_ref(), ..Source::default() };
    let Some(text) = source.read()? else { super::usage("perplexity", "--file is missing") };
    let path = args.model.locate()?;
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default())?;
    let assets = load::assets(&checkpoint, &args.model.files)?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let ids = assets.tokenizer.encode(&text, options)?;
    let mut runner = Runner::load(&checkpoint, &load_options(args, &checkpoint))
        .with_context(|| format!("cannot load {}", path.display()))?;
    let started = Instant::now();
    let score = score(&mut runner, &ids, args.stride)?;
    print(args.json, score, started.elapsed().as_secs_f64(), runner.info().context_length)?;
    Ok(ExitCode::SUCCESS)
}

fn load_options(args: &Args, checkpoint: &Checkpoint) -> LoadOptions {
    let options = args.load.options();
    let context = options.context.unwrap_or(checkpoint.config().context_length.min(CONTEXT));
    let chunk = options.chunk.min(ROWS);
    LoadOptions { context: Some(context), chunk, logit_rows: chunk, ..options }
}

fn score(runner: &mut Runner, ids: &[u32], stride: Option<u32>) -> Result<Score> {
    let context = runner.info().context_length;
    let stride = stride.map_or(context, |stride| (stride as usize).min(context));
    let vocab = runner.info().vocab_size;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        bail!("the tokenizer gives token id {id}, but the model has {vocab} tokens");
    }
    let windows = windows(ids.len(), context, stride);
    let bar = progress::count(windows.iter().map(|(window, _)| window.len() as u64 - 1).sum());
    let (mut score, watch) = (Score::default(), Watch::new());
    for (window, scored) in windows {
        score.add(score_window(runner, &ids[window], scored, &bar, &watch)?);
        bar.set_message(format!("perplexity {:.4}", score.mean().exp()));
    }
    bar.finish_and_clear();
    if score.tokens == 0 {
        bail!("expected a text of at least two tokens, found {}", ids.len());
    }
    Ok(score)
}

/// The windows over `len` tokens, each with its first token to be scored.
fn windows(len: usize, context: usize, stride: usize) -> Vec<(Range<usize>, usize)> {
    let (mut windows, mut done) = (Vec::new(), 0);
    for start in (0..len).step_by(stride) {
        let end = (start + context).min(len);
        let first = done.max(start + 1);
        if first < end {
            windows.push((start..end, first - start));
        }
        done = end;
        if end == len {
            break;
        }
    }
    windows
}

/// Scores the tokens of a window from index `scored` on.
fn score_window(
    runner: &mut Runner,
    ids: &[u32],
    scored: usize,
    bar: &ProgressBar,
    watch: &Watch,
) -> Result<Score> {
    let mut session = Session::new(runner);
    let mut score = Score::default();
    let (inputs, mut finite) = (&ids[..ids.len() - 1], true);
    for (at, inputs) in inputs.chunks(ROWS).enumerate() {
        watch.check()?;
        session.feed_all(inputs, |index, logits| {
            let target = at * ROWS + index + 1;
            if target >= scored {
                let nll = nll(logits, ids[target]);
                finite &= nll.is_finite();
                score.add(Score { nll, tokens: 1 });
            }
            Ok(())
        })?;
        bar.inc(inputs.len() as u64);
    }
    if !finite {
        return Err(engine::Error::NotFinite.into());
    }
    Ok(score)
}

/// `-log p(target)`, in double precision.
fn nll(logits: &[f32], target: u32) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    largest + sum.ln() - f64::from(logits[target as usize])
}

impl Score {
    fn add(&mut self, other: Self) {
        self.nll += other.nll;
        self.tokens += other.tokens;
    }

    fn mean(self) -> f64 {
        self.nll / self.tokens.max(1) as f64
    }
}

fn print(as_json: bool, score: Score, seconds: f64, context: usize) -> Result<()> {
    let (mean, tokens) = (score.mean(), score.tokens);
    if as_json {
        return Ok(output::json(&json!({
            "mean_nll": mean,
            "perplexity": mean.exp(),
            "tokens": tokens,
            "context": context,
            "seconds": seconds,
        }))?);
    }
    let lines = [
        format!("mean NLL    {mean:.6}"),
        format!("perplexity  {:.4}", mean.exp()),
        format!("tokens      {tokens} scored, windows of {context}"),
    ];
    Ok(output::lines(lines)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(len: usize, context: usize, stride: usize, expected: &[(Range<usize>, usize)]) {
        assert_eq!(windows(len, context, stride), expected);
    }

    #[test]
    fn each_token_is_scored_once_in_the_first_window_that_can() {
        check(10, 4, 4, &[(0..4, 1), (4..8, 1), (8..10, 1)]);
        check(9, 4, 4, &[(0..4, 1), (4..8, 1)]);
        check(8, 4, 2, &[(0..4, 1), (2..6, 2), (4..8, 2)]);
        check(3, 4, 4, &[(0..3, 1)]);
        check(1, 4, 4, &[]);
        check(0, 4, 4, &[]);
        check(4, 1, 1, &[]);
    }

    #[test]
    fn equal_logits_cost_the_logarithm_of_their_number() {
        assert!((nll(&[3.0; 8], 2) - 8f64.ln()).abs() < 1e-12);
        assert!(nll(&[f32::NAN, 0.0], 1).is_nan());
    }
}
