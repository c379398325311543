//! `gannet rerank`: documents by their relevance for a query.

use crate::load::PlainSourceArgs;
use crate::output;
use crate::progress::{self, Task};
use crate::runtime::runtime;
use anyhow::{Result, bail};
use api::{RequestOptions, Service, probability};
use serde_json::json;

/// Documents that are computed together.
const TOGETHER: usize = 64;

/// Order documents by their relevance for a query
///
/// Prints one line for each document, the most relevant first: its relevance from 0 to 1, its
/// number from 0 on, and its text.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The query
    query: String,
    /// The documents
    #[arg(required = true)]
    documents: Vec<String>,
    /// Print the model's scores instead of numbers from 0 to 1
    #[arg(long)]
    raw_scores: bool,
    /// Leave out the ends of documents that are too long
    #[arg(long)]
    truncate: bool,
    /// Print one JSON object for each document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub source: PlainSourceArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let loaded = args.source.load(None)?;
    let scores = runtime()?.block_on(scores(args, &loaded.service))?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    for index in order {
        let score = scores[index];
        let relevance = if args.raw_scores { score } else { probability(score) };
        let document = &args.documents[index];
        if args.json {
            let line = json!({"index": index, "relevance_score": relevance, "document": document});
            output::lines([line.to_string()])?;
        } else {
            output::lines([format!("{relevance:.6}\t{index}\t{document}")])?;
        }
    }
    Ok(())
}

/// The score of each document.
async fn scores(args: &Args, service: &Service) -> Result<Vec<f32>> {
    if !service.ranks() {
        bail!("the model has no head that scores documents");
    }
    let query = service.query_ids(&args.query)?;
    let task = Task::new(progress::tokens(0));
    let mut scores = Vec::with_capacity(args.documents.len());
    for documents in args.documents.chunks(TOGETHER) {
        let mut running = Vec::with_capacity(documents.len());
        for document in documents {
            let most = args.truncate.then_some(usize::MAX);
            let pair = service.checked_pair(&query, document, most)?;
            let tokens = pair.ids.len() as u64;
            task.bar().inc_length(tokens);
            let (service, bar) = (service.clone(), task.bar().clone());
            running.push(tokio::spawn(async move {
                let score = service.score(pair, &RequestOptions::default()).await;
                bar.inc(tokens);
                score
            }));
        }
        for found in running {
            scores.extend(found.await??.vector.first());
        }
    }
    Ok(scores)
}
