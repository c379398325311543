//! `gannet imatrix`: which columns of a model's weights matter for a text.
//!
//! The text is cut into windows, each computed by itself. Between windows the sums are f32, as
//! the file has them, so that work which goes on from the file ends with the same bits as work
//! that was never interrupted.

mod collect;
mod digest;

use super::likelihood::{ROWS, check_ids};
use crate::args::FileArgs;
use crate::input::TextSource;
use crate::{load, output};
use anyhow::{Context, Result, bail};
use collect::Windows;
use engine::{LoadOptions, Mode, Runner};
use formats::imatrix::Imatrix;
use formats::{Checkpoint, OpenOptions};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use text::EncodeOptions;

/// Tokens of a window where none are asked for and the model can take them.
const CONTEXT: usize = 512;
/// Most rows: the file counts them in f32, which is exact so far.
const MAX_ROWS: usize = 1 << 24;

/// Collect which columns of a model's weights matter, for quantize --imatrix
///
/// Adds up the squares of what goes into the product with each weight matrix while the model
/// reads a text of the kind it will be used for. Writes a GGUF file that llama.cpp reads too. The
/// file is written now and then and when Ctrl-C ends the work; the same command goes on from it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf file, owner/name on the hub, or `builtin`
    model: String,
    /// File with the text; `-` or left out: standard input
    #[arg(short, long, value_name = "FILE", alias = "file")]
    text: Option<PathBuf>,
    /// File to write, or to go on from
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf")]
    output: PathBuf,
    /// Tokens of a window; left out: 512, or the model's context if that is shorter
    #[arg(long, value_name = "N", visible_alias = "chunk-size")]
    ctx: Option<usize>,
    /// Most windows to compute; left out: all that the text fills
    #[arg(long, value_name = "N", visible_alias = "chunks")]
    windows: Option<usize>,
    /// Threads that compute; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Start anew in place of what is there
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    let source = TextSource { file: args.text.as_ref(), ..TextSource::default() };
    let Some(text) = source.read()? else { super::usage("imatrix", "--text is missing") };
    let path = args.files.locate(&args.model)?;
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default())?;
    let tokenizer = load::assets(&checkpoint, &args.files)?.tokenizer;
    let options = EncodeOptions { add_special: false, parse_special: false };
    let ids = tokenizer.encode(&text, options)?;
    let windows = windows(args, &checkpoint, tokenizer.prefix_ids(), &ids)?;
    let begun = begin(args, &checkpoint, &windows)?;
    let mut sums = begun.clone();
    if sums.chunks < windows.count {
        let mut runner = load_runner(args, &checkpoint, windows.context)?;
        check_ids(&runner, &ids)?;
        collect::collect(&mut runner, &windows, &mut sums, &args.output)?;
    }
    report(args, &sums, begun.chunks, started.elapsed().as_secs_f64())?;
    Ok(ExitCode::SUCCESS)
}

/// How the text is cut. Every window begins as every text does: with the model's first token,
/// which activates it like no other.
fn windows<'a>(
    args: &Args,
    checkpoint: &Checkpoint,
    prefix: &'a [u32],
    ids: &'a [u32],
) -> Result<Windows<'a>> {
    let context = args.ctx.unwrap_or(checkpoint.config().context_length.min(CONTEXT));
    let Some(share) = context.checked_sub(prefix.len()).filter(|share| *share > 0) else {
        bail!("--ctx: expected at least {} tokens, found {context}", prefix.len() + 1);
    };
    let count = (ids.len() / share).min(args.windows.unwrap_or(usize::MAX));
    if count == 0 {
        let found = ids.len();
        bail!("expected a text of at least {share} tokens, found {found}; --ctx takes fewer");
    }
    if count.checked_mul(context).is_none_or(|rows| rows > MAX_ROWS) {
        let most = MAX_ROWS / context;
        bail!("expected a text of at most {most} windows, found {count}; --windows takes fewer");
    }
    Ok(Windows { prefix, ids, context, count })
}

/// What is to be added to: nothing yet, or what the output holds.
fn begin(args: &Args, checkpoint: &Checkpoint, windows: &Windows) -> Result<Imatrix> {
    let new = Imatrix {
        datasets: vec![dataset(args.text.as_deref())],
        chunk_size: Some(windows.context),
        text_digest: Some(digest::text(windows)),
        model_digest: Some(digest::model(checkpoint)),
        ..Imatrix::default()
    };
    if args.force || !args.output.exists() {
        return Ok(new);
    }
    let old = Imatrix::open(&args.output)
        .with_context(|| format!("cannot go on from {}", args.output.display()))?;
    check_same(&old, &new, &args.output)?;
    let (done, all) = (old.chunks.min(windows.count), windows.count);
    output::note(format_args!("{}: {done} of {all} windows are there", args.output.display()));
    Ok(old)
}

/// The name of the text as the file has it.
fn dataset(text: Option<&Path>) -> String {
    let name = text.filter(|path| *path != Path::new("-")).and_then(Path::file_name);
    name.map_or_else(|| "standard input".into(), |name| name.to_string_lossy().into_owned())
}

/// An error that names the first thing in which the output is of other work than this.
fn check_same(old: &Imatrix, new: &Imatrix, path: &Path) -> Result<()> {
    let ours = old.text_digest.is_some() && old.model_digest.is_some();
    let size = |imatrix: &Imatrix| format!("{:?}", imatrix.chunk_size.unwrap_or(0));
    let problem = if !ours {
        "expected a file of this command, found another's".into()
    } else if old.chunk_size != new.chunk_size {
        let (new, old) = (size(new), size(old));
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

fn load_runner(args: &Args, checkpoint: &Checkpoint, context: usize) -> Result<Runner> {
    let options = LoadOptions {
        threads: args.threads,
        mode: Mode::Exact,
        context: Some(context),
        chunk: ROWS,
        logit_rows: ROWS,
        ..LoadOptions::default()
    };
    let mut runner = Runner::load(checkpoint, &options)
        .with_context(|| format!("cannot load {}", args.model))?;
    runner.collect_inputs();
    Ok(runner)
}

fn report(args: &Args, sums: &Imatrix, resumed_at: usize, seconds: f64) -> Result<()> {
    let (windows, context) = (sums.chunks, sums.chunk_size.unwrap_or(0));
    let (matrices, tokens) = (sums.entries.len(), windows * context);
    if args.json {
        return Ok(output::json(&json!({
            "file": args.output.display().to_string(),
            "matrices": matrices,
            "windows": windows,
            "context": context,
            "tokens": tokens,
            "resumed_at": resumed_at,
            "seconds": seconds,
        }))?);
    }
    output::lines([
        format!("matrices  {matrices}"),
        format!("tokens    {tokens} in {windows} windows of {context}"),
    ])?;
    output::note(format_args!("wrote {}", args.output.display()));
    Ok(())
}
