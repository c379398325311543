//! `gannet imatrix`: the importance of a model's weight columns for a text or for conversations.

mod conversations;

use super::likelihood::check_ids;
use crate::args::FileArgs;
use crate::input::TextSource;
use crate::progress::{self, Task};
use crate::size::threads;
use crate::{load, output};
use anyhow::{Context, Result};
use api::TranscriptRenderer;
use conversations::ConversationFile;
use convert::imatrix::{Collected, ImatrixOptions, TextIds, collect};
use formats::{Checkpoint, ModelConfig, OpenOptions};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use text::{EncodeOptions, TextAssets};

/// Collect the importance of weight columns, for quantize --imatrix
///
/// Sums the squares of the inputs of each weight matrix while the model reads a text, or
/// conversations, of the kind it will be used for. Writes a GGUF file that llama.cpp reads too. The
/// file is written regularly and after Ctrl-C; the same command resumes from it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf file, owner/name on the hub, or `builtin`
    model: OsString,
    /// File with the text, `-` for standard input [default: standard input]
    #[arg(short, long, value_name = "FILE", alias = "text", short_alias = 't')]
    file: Option<PathBuf>,
    /// File of conversations, instead of a text: lines are JSON objects with messages and optional
    /// tools, as in OpenAI's fine-tuning files. The model's chat template renders each; `-` for
    /// standard input
    #[arg(long, value_name = "FILE.jsonl", conflicts_with = "file")]
    chat: Option<PathBuf>,
    /// File to write, or to resume from
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf")]
    output: PathBuf,
    /// Tokens per window [default: 512, or the model's context if that is shorter]
    #[arg(long, value_name = "N", visible_alias = "chunk-size")]
    ctx: Option<usize>,
    /// Maximum number of windows [default: all that the text fills]
    #[arg(long, value_name = "N", visible_alias = "chunks")]
    windows: Option<usize>,
    /// Compute threads; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Discard an existing file and start anew
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// What the model reads.
enum Calibration {
    Text(String),
    Conversations(ConversationFile),
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let calibration = Calibration::read(args)?;
    let path = args.files.locate(&args.model)?;
    let checkpoint = Checkpoint::open(&path, &OpenOptions::default())?;
    let assets = Arc::new(load::assets(&checkpoint, &args.files)?);
    let ids = calibration.ids(&assets, checkpoint.config())?;
    check_ids(checkpoint.config().vocab, &ids)?;
    let options = ImatrixOptions {
        context: args.ctx,
        windows: args.windows,
        threads: args.threads,
        force: args.force,
        dataset: dataset(args.chat.as_deref().or(args.file.as_deref())),
    };
    let text = TextIds { prefix: assets.tokenizer.prefix_ids(), ids: &ids };
    let collected =
        collect(&checkpoint, text, &args.output, &options, &mut Task::new(progress::tokens(0)))?;
    report(args, &collected, started.elapsed().as_secs_f64())
}

impl Calibration {
    fn read(args: &Args) -> Result<Self> {
        if let Some(path) = &args.chat {
            return Ok(Self::Conversations(ConversationFile::read(path)?));
        }
        let source = TextSource { argument: None, file: args.file.as_ref() };
        Ok(Self::Text(source.read("imatrix", "--file or --chat is missing")?))
    }

    /// The tokens, without the prefix that each window begins with.
    fn ids(&self, assets: &Arc<TextAssets>, config: &ModelConfig) -> Result<Vec<u32>> {
        match self {
            Self::Text(text) => {
                let options = EncodeOptions { add_special: false, parse_special: false };
                Ok(assets.tokenizer.encode(text, options)?)
            }
            Self::Conversations(file) => {
                let renderer = TranscriptRenderer::new(Arc::clone(assets), config);
                let renderer = renderer.context("--chat: the model cannot render conversations")?;
                file.ids(&renderer, assets.tokenizer.prefix_ids())
            }
        }
    }
}

/// The name of the text in the file.
fn dataset(text: Option<&Path>) -> String {
    let name = text.filter(|path| *path != Path::new("-")).and_then(Path::file_name);
    name.map_or_else(|| "standard input".into(), |name| name.to_string_lossy().into_owned())
}

fn report(args: &Args, collected: &Collected, seconds: f64) -> Result<()> {
    let Collected { sums, resumed_at } = collected;
    let (windows, context) = (sums.chunks, sums.chunk_size.unwrap_or(0));
    let (matrices, tokens) = (sums.entries.len(), windows * context);
    if args.json {
        return output::json(&json!({
            "file": args.output.display().to_string(),
            "matrices": matrices,
            "windows": windows,
            "context": context,
            "tokens": tokens,
            "resumed_at": resumed_at,
            "seconds": seconds,
        }));
    }
    output::lines([
        format!("matrices  {matrices}"),
        format!("tokens    {tokens} in {windows} windows of {context}"),
    ])?;
    output::note(format_args!("wrote {}", args.output.display()));
    Ok(())
}
