//! The scores of documents for queries.

use crate::generate::embeddings::{self, TextWork, refused};
use crate::http::error::HttpError;
use crate::http::request::ModelContext;
use crate::protocols::unsupported::{Unsupported, is_word};
use api::{RequestOptions, Service};
use serde::Serialize;
use text::EncodedPair;
use utoipa::ToSchema;

/// Members that would leave out other ends of texts.
pub(super) const TRUNCATION: [Unsupported; 2] = [
    ("truncation_direction", |value| is_word(value, &["right"])),
    ("truncation_side", |value| is_word(value, &["right"])),
];

/// Token counts of queries and documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The scores of documents, with their token counts.
pub(super) struct Scores {
    /// Logits.
    pub values: Vec<f32>,
    pub usage: RankingUsage,
}

/// The ids of each of the `documents`, which are at `param`, with its query. The first of
/// several queries is that of the first document, and so on. The ends of documents that make more
/// than `most_tokens`, if there is such a limit, are left out.
pub(super) fn checked(
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
pub(super) async fn computed(
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
