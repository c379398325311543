//! `gannet perplexity`: how well a model predicts a text.
//!
//! The text is cut into windows of the context; every token but the first of a window is scored
//! given those before it in the window. With a stride, windows overlap and only the tokens that
//! no earlier window has scored count, so that each has a longer context.

use super::likelihood::{CONTEXT, ROWS, check_ids, check_window, nll, windows};
use crate::args::{LoadArgs, ModelArgs};
use crate::input::TextSource;
use crate::interrupt::Watch;
use crate::placement::PlacementArgs;
use crate::rank_args::RankArgs;
use crate::ranked_model::RankedModel;
use crate::{load, output, progress};
use anyhow::{Result, bail};
use base::math;
use engine::{KvMemory, LoadOptions, Runner, SingleSequence};
use formats::Checkpoint;
use indicatif::ProgressBar;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use text::EncodeOptions;

/// Measure how well a model predicts a text
///
/// Prints the mean negative log likelihood per token (natural logarithm) and its exponential, the
/// perplexity. The text is read in windows of the context (--ctx, at most 2048 where left out);
/// the first token of a window is not scored.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the text, `-` for standard input [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Tokens from the start of one window to the start of the next [default: a whole window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    ranks: RankArgs,
}

/// Sums over the scored tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    nll: f64,
    tokens: usize,
}

impl Args {
    /// The model as ranks load it.
    pub fn ranked(&self) -> Result<RankedModel> {
        let options = self.load.options(KvMemory::OneSequence);
        let options = LoadOptions { placement: self.placement.rules()?, ..options };
        Ok(self.model.ranked(options, &self.ranks))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = TextSource { argument: None, file: args.file.as_ref() };
    let text = source.read("perplexity", "--file is missing")?;
    let ranks = args.ranked()?.join()?;
    let path = ranks.in_turn(|| args.model.locate())?;
    let checkpoint = ranks.open(&path, None)?;
    let assets = load::assets(&checkpoint, &args.model.files)?;
    let encode = EncodeOptions { add_special: true, parse_special: false };
    let ids = assets.tokenizer.encode(&text, encode)?;
    let options = ranks.add_to(load_options(args, &checkpoint));
    let options = LoadOptions { placement: args.placement.rules()?, ..options };
    let mut runner = load::generating_runner(&checkpoint, &options)?;
    let started = Instant::now();
    let score = score(&mut runner, &ids, args.stride)?;
    print(args.json, score, started.elapsed().as_secs_f64(), runner.info().context_length)
}

fn load_options(args: &Args, checkpoint: &Checkpoint) -> LoadOptions {
    let options = args.load.options(KvMemory::OneSequence);
    let context = options.context.unwrap_or(checkpoint.config().context.min(CONTEXT));
    let chunk = options.chunk.map_or(ROWS, |chunk| chunk.min(ROWS));
    LoadOptions {
        context: Some(context),
        chunk: Some(chunk),
        logit_rows: chunk,
        parallel: 1,
        ..options
    }
}

fn score(runner: &mut Runner, ids: &[u32], stride: Option<u32>) -> Result<Score> {
    let context = runner.info().context_length;
    let stride = stride.map_or(context, |stride| (stride as usize).min(context));
    check_ids(runner.info().vocab_size, ids)?;
    check_window(context)?;
    let windows = windows(ids.len(), context, stride);
    let bar = progress::tokens(windows.iter().map(|(window, _)| window.len() as u64 - 1).sum());
    let (mut score, watch) = (Score::default(), Watch::new());
    for (window, scored) in windows {
        score.add(score_window(runner, &ids[window], scored, &bar, &watch)?);
        bar.set_message(format!("perplexity {:.4}", math::exp(score.mean())));
    }
    bar.finish_and_clear();
    if score.tokens == 0 {
        bail!("expected a text of at least two tokens, found {}", ids.len());
    }
    Ok(score)
}

/// Scores the tokens of a window from index `scored` on.
fn score_window(
    runner: &mut Runner,
    ids: &[u32],
    scored: usize,
    bar: &ProgressBar,
    watch: &Watch,
) -> Result<Score> {
    let mut session = SingleSequence::new(runner);
    session.expect(ids.len());
    let mut score = Score::default();
    for (at, inputs) in ids[..ids.len() - 1].chunks(ROWS).enumerate() {
        watch.check()?;
        session.feed_all(inputs, |index, logits| {
            let target = at * ROWS + index + 1;
            if target >= scored {
                score.add(Score { nll: nll(logits, ids[target]), tokens: 1 });
            }
            Ok(())
        })?;
        bar.inc(inputs.len() as u64);
    }
    if !score.nll.is_finite() {
        return Err(engine::Error::NotFinite.into());
    }
    Ok(score)
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
        return output::json(&json!({
            "mean_nll": mean,
            "perplexity": math::exp(mean),
            "tokens": tokens,
            "context": context,
            "seconds": seconds,
        }));
    }
    output::lines([
        format!("mean NLL    {mean:.6}"),
        format!("perplexity  {:.4}", math::exp(mean)),
        format!("tokens      {tokens} scored, windows of {context}"),
    ])
}
