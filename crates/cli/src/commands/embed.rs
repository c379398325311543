//! `gannet embed`: vectors of texts.

use crate::args::PoolingArgs;
use crate::load::PlainSourceArgs;
use crate::output;
use crate::progress::{self, Task};
use crate::runtime::runtime;
use anyhow::Result;
use api::{Prompt, RequestOptions, Service};
use engine::Embed;
use indicatif::ProgressBar;
use serde_json::json;
use std::io::BufRead;
use text::EncodeOptions;

/// Texts that are computed together.
const TOGETHER: usize = 64;

/// Print the embeddings of texts
///
/// Prints one JSON array of numbers for each text, on a line of its own. Without texts, each line
/// of standard input is one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The texts [default: the lines of standard input]
    texts: Vec<String>,
    /// Name of the checkpoint's prompt that is put before each text, such as `query` [default: the
    /// checkpoint's default, if it has one]
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Number of leading values of each vector that are kept
    #[arg(long, value_name = "N")]
    dimensions: Option<usize>,
    /// Do not divide vectors by their length
    #[arg(long)]
    no_normalize: bool,
    /// Leave out the ends of texts that are too long
    #[arg(long)]
    truncate: bool,
    #[command(flatten)]
    pooling: PoolingArgs,
    #[command(flatten)]
    pub source: PlainSourceArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let loaded = args.source.load(args.pooling.pooling)?;
    let runtime = runtime()?;
    let bar = Task::new(progress::tokens(0));
    let print = |texts: &[String]| {
        let vectors = runtime.block_on(vectors(args, &loaded.service, texts, bar.bar()))?;
        let lines = vectors.iter().map(|vector| json!(vector).to_string());
        bar.bar().suspend(|| output::lines(lines))
    };
    if !args.texts.is_empty() {
        return args.texts.chunks(TOGETHER).try_for_each(print);
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let texts: Vec<String> = lines.by_ref().take(TOGETHER).collect::<Result<_, _>>()?;
        if texts.is_empty() {
            return Ok(());
        }
        print(&texts)?;
    }
}

/// The vectors of texts, which are computed together and counted by `bar`.
async fn vectors(
    args: &Args,
    service: &Service,
    texts: &[String],
    bar: &ProgressBar,
) -> Result<Vec<Vec<f32>>> {
    let normalize = !args.no_normalize;
    let embed = Embed { normalize, dimensions: args.dimensions, ..Embed::default() };
    let before = service.embedding_prompt(args.prompt_name.as_deref())?;
    let mut running = Vec::with_capacity(texts.len());
    for text in texts {
        let options = EncodeOptions { add_special: true, parse_special: true };
        let ids = service.tokenize(&format!("{before}{text}"), options)?;
        let most = args.truncate.then_some(usize::MAX);
        let ids = service.checked_text(ids, embed, most)?;
        let tokens = ids.len() as u64;
        bar.inc_length(tokens);
        let (prompt, service, bar) = (Prompt::Ids(ids), service.clone(), bar.clone());
        running.push(tokio::spawn(async move {
            let embedded = service.embed(&prompt, embed, &RequestOptions::default()).await;
            bar.inc(tokens);
            embedded
        }));
    }
    let mut vectors = Vec::with_capacity(texts.len());
    for found in running {
        vectors.push(found.await??.vector);
    }
    Ok(vectors)
}
