//! `gannet compare`: the divergence between the predictions of two models for a text.
//!
//! Both read the same tokens in the same windows as `perplexity`; at every scored position the
//! two distributions over the next token are compared. The first model is the reference.

use super::likelihood::{CONTEXT, ROWS, check_ids, check_window, log_total, windows};
use crate::args::{FileArgs, LoadArgs};
use crate::input::TextSource;
use crate::interrupt::Watch;
use crate::placement::PlacementArgs;
use crate::{load, output, progress};
use anyhow::{Result, bail};
use base::math;
use engine::{KvMemory, LoadOptions, Runner, SingleSequence};
use formats::{Checkpoint, OpenOptions};
use kernels::kv::KvType;
use models::placement::Placement;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use text::EncodeOptions;

/// Compare the predictions of two models for a text
///
/// Prints both perplexities, the mean Kullback-Leibler divergence of B from A per token (natural
/// logarithm), and how often both have the same most likely token. Both need the same vocabulary,
/// as a model and its quantised form have; the tokenizer is A's.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The reference: folder, .gguf file, owner/name on the hub, or `builtin`
    a: OsString,
    /// The model to compare with the reference
    b: OsString,
    /// File with the text, `-` for standard input [default: standard input]
    #[arg(short, long, value_name = "FILE", alias = "text", short_alias = 't')]
    file: Option<PathBuf>,
    /// Type of B's KV cache [default: --kv-type, as for A]
    #[arg(long, value_name = "TYPE")]
    b_kv_type: Option<KvType>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Placement rules of B, instead of --placement
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    b_placement: Option<PathBuf>,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    load: LoadArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = TextSource { argument: None, file: args.file.as_ref() };
    let text = source.read("compare", "--file is missing")?;
    let a = open(args, &args.a)?;
    let b = open(args, &args.b)?;
    let assets = load::assets(&a, &args.files)?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let ids = assets.tokenizer.encode(&text, options)?;
    let lengths = [&a, &b].map(|checkpoint| checkpoint.config().context);
    let options = args.load.options(KvMemory::OneSequence);
    let context = options.context.unwrap_or(lengths[0].min(lengths[1]).min(CONTEXT));
    let placement = args.placement.rules()?;
    let options = LoadOptions { context: Some(context), placement, ..options };
    let mut a = runner(&options, &a)?;
    let placement = match &args.b_placement {
        Some(file) => Some(Arc::new(Placement::open(file)?)),
        None => options.placement.clone(),
    };
    let kv_type = args.b_kv_type.or(options.kv_type);
    let options = LoadOptions { kv_type, placement, ..options };
    let mut b = runner(&options, &b)?;
    let vocabularies = [&a, &b].map(|runner| runner.info().vocab_size);
    if vocabularies[0] != vocabularies[1] {
        let [a, b] = vocabularies;
        bail!("expected models with the same vocabulary, found {a} and {b} tokens");
    }
    check_ids(vocabularies[0], &ids)?;
    check_window(context)?;
    let totals = compare(&mut a, &mut b, &ids, context)?;
    print(args.json, &totals, context)
}

fn open(args: &Args, model: &OsStr) -> Result<Checkpoint> {
    Ok(Checkpoint::open(&args.files.locate(model)?, &OpenOptions::default())?)
}

fn runner(options: &LoadOptions, checkpoint: &Checkpoint) -> Result<Runner> {
    let chunk = options.chunk.map_or(ROWS, |chunk| chunk.min(ROWS));
    let options =
        LoadOptions { chunk: Some(chunk), logit_rows: chunk, parallel: 1, ..options.clone() };
    load::generating_runner(checkpoint, &options)
}

/// Sums over the scored positions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    tokens: usize,
    nll: [f64; 2],
    divergence: f64,
    largest_divergence: f64,
    agreements: usize,
}

fn compare(a: &mut Runner, b: &mut Runner, ids: &[u32], context: usize) -> Result<Totals> {
    let windows = windows(ids.len(), context, context);
    let bar = progress::tokens(windows.iter().map(|(window, _)| window.len() as u64 - 1).sum());
    let (mut totals, watch) = (Totals::default(), Watch::new());
    let mut reference = Vec::new();
    for (window, _) in windows {
        let ids = &ids[window];
        let (mut a, mut b) = (SingleSequence::new(a), SingleSequence::new(b));
        for (inputs, targets) in ids[..ids.len() - 1].chunks(ROWS).zip(ids[1..].chunks(ROWS)) {
            watch.check()?;
            reference.clear();
            a.feed_all(inputs, |_, logits| {
                reference.extend_from_slice(logits);
                Ok(())
            })?;
            b.feed_all(inputs, |row, logits| {
                let reference = &reference[row * logits.len()..][..logits.len()];
                totals.add(reference, logits, targets[row]);
                Ok(())
            })?;
            bar.inc(inputs.len() as u64);
        }
    }
    bar.finish_and_clear();
    if totals.tokens == 0 {
        bail!("expected a text of at least two tokens, found {}", ids.len());
    }
    if !totals.divergence.is_finite() {
        return Err(engine::Error::NotFinite.into());
    }
    Ok(totals)
}

impl Totals {
    /// Adds one position: the logits of both models there and the token that follows.
    fn add(&mut self, a: &[f32], b: &[f32], target: u32) {
        let (total_a, total_b) = (log_total(a), log_total(b));
        let divergence: f64 = a
            .iter()
            .zip(b)
            .map(|(&a, &b)| {
                let (a, b) = (f64::from(a) - total_a, f64::from(b) - total_b);
                math::exp(a) * (a - b)
            })
            .sum();
        self.tokens += 1;
        self.nll[0] += total_a - f64::from(a[target as usize]);
        self.nll[1] += total_b - f64::from(b[target as usize]);
        self.divergence += divergence;
        self.largest_divergence = self.largest_divergence.max(divergence);
        self.agreements += usize::from(best(a) == best(b));
    }

    fn mean(&self, total: f64) -> f64 {
        total / self.tokens as f64
    }
}

/// The index of the largest, the first of equals.
fn best(logits: &[f32]) -> usize {
    (1..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best })
}

fn print(as_json: bool, totals: &Totals, context: usize) -> Result<()> {
    let perplexity = totals.nll.map(|nll| math::exp(totals.mean(nll)));
    let divergence = totals.mean(totals.divergence);
    let agreement = totals.mean(totals.agreements as f64);
    if as_json {
        return output::json(&json!({
            "perplexity_a": perplexity[0],
            "perplexity_b": perplexity[1],
            "mean_kl_divergence": divergence,
            "max_kl_divergence": totals.largest_divergence,
            "top1_agreement": agreement,
            "tokens": totals.tokens,
            "context": context,
        }));
    }
    output::lines([
        format!("perplexity of A     {:.4}", perplexity[0]),
        format!("perplexity of B     {:.4}", perplexity[1]),
        format!("mean KL divergence  {divergence:.6} (at most {:.4})", totals.largest_divergence),
        format!("same top token      {:.2} %", 100.0 * agreement),
        format!("tokens              {} scored, windows of {context}", totals.tokens),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_models_do_not_diverge_and_others_do_as_the_definition_says() {
        let mut totals = Totals::default();
        totals.add(&[0.0, 1.0, 2.0], &[5.0, 6.0, 7.0], 2);
        assert!(totals.divergence.abs() < 1e-12 && totals.agreements == 1);
        let mut totals = Totals::default();
        // Probabilities 3/4 and 1/4 against one half each.
        totals.add(&[3f32.ln(), 0.0], &[0.0, 1e-9], 0);
        let expected = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        assert!((totals.divergence - expected).abs() < 1e-6, "{totals:?}");
        assert!((totals.nll[1] - 2f64.ln()).abs() < 1e-6);
    }
}
