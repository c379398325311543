//! Scores of documents for a query: rerankers.
//!
//! Source: the API references of Jina and Cohere, and those of vLLM, llama.cpp's server and Text
//! Embeddings Inference (TEI). Where these leave a choice:
//!
//! - A relevance is the logistic function of the model's score, from 0 to 1, unless `raw_scores`
//!   is set.
//! - A body with `texts` instead of `documents` is one of TEI's, and is answered with a list.
//! - A query with its document that is too long is refused, unless `truncate` is set or
//!   `truncate_prompt_tokens` given: then the end of the document is left out.
//! - Documents are scored whole: a warning names members about chunks of them.

mod rerank;
mod score;

use crate::generate::embeddings::{self, TextWork, refused};
use crate::http::app::App;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::http::request::ModelContext;
use crate::protocols::unsupported::{Unsupported, is_word};
use api::{EncodedPair, RequestOptions, Service};
use axum::routing::post;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Members that would leave out other ends of texts.
const TRUNCATION: [Unsupported; 2] = [
    ("truncation_direction", |value| is_word(value, &["right"])),
    ("truncation_side", |value| is_word(value, &["right"])),
];

/// The routes of rerankers.
pub(crate) struct Ranking;

/// Further paths under which clients look for a ranking.
const PATHS: [&str; 4] = ["/rerank", "/reranking", "/v1/reranking", "/v2/rerank"];

impl Protocol for Ranking {
    fn routes() -> OpenApiRouter<App> {
        let router = OpenApiRouter::new()
            .routes(routes!(rerank::rerank))
            .routes(routes!(score::score))
            .route("/score", post(score::score));
        PATHS.iter().fold(router, |router, path| router.route(path, post(rerank::rerank)))
    }
}

/// Token counts of queries and documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The scores of documents, with their token counts.
struct Scores {
    /// Logits.
    values: Vec<f32>,
    usage: RankingUsage,
}

/// The ids of each of the `documents`, which are at `param`, with its query. The first of
/// several queries is that of the first document, and so on. The ends of documents that make more
/// than `most_tokens`, if there is such a limit, are left out.
fn checked(
    service: &Service,
    queries: &[String],
    (documents, param): (&[String], &str),
    most_tokens: Option<usize>,
) -> Result<Vec<EncodedPair>, HttpError> {
    if !service.ranks() {
        let message = "the model does not support reranking: it has no head that scores documents";
        return Err(HttpError::not_supported(message));
    }
    embeddings::count(documents.len(), param)?;
    let at = |index: usize| format!("{param}[{index}]");
    let queries = queries
        .iter()
        .enumerate()
        .map(|(index, query)| service.query_ids(query).map_err(|error| refused(error, &at(index))));
    let queries = queries.collect::<Result<Vec<_>, _>>()?;
    let pairs = queries.iter().cycle().zip(documents).enumerate();
    let pairs = pairs.map(|(index, (query, document))| {
        let pair = service.checked_pair(query, document, most_tokens);
        pair.map_err(|error| refused(error, &at(index)))
    });
    pairs.collect()
}

/// The score of each pair, in their order.
async fn computed(
    context: &ModelContext,
    pairs: Vec<EncodedPair>,
    options: RequestOptions,
    param: &str,
) -> Result<Scores, HttpError> {
    let pairs = pairs.into_iter().map(TextWork::Score).collect();
    let found = embeddings::each(context, pairs, options, param).await?;
    let tokens = embeddings::tokens(&found);
    let values = found.iter().flat_map(|one| one.vector.first().copied()).collect();
    Ok(Scores { values, usage: RankingUsage { prompt_tokens: tokens, total_tokens: tokens } })
}
