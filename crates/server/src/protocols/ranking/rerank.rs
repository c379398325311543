//! `POST /v1/rerank`: documents in the order of their relevance for a query.

use super::scores::{RankingUsage, Scores, TRUNCATION, checked, computed};
use crate::generate::embeddings::most_tokens;
use crate::generate::flow::prepare_within;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire;
use crate::protocols::openai::problem::Problem;
use crate::protocols::unsupported::{self, Unsupported, is_off};
use crate::protocols::warnings::Warnings;
use api::{RequestOptions, Service, probability};
use axum::Json;
use axum::body::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::EncodedPair;
use utoipa::ToSchema;

/// A query and documents.
#[derive(Debug, Deserialize, ToSchema)]
struct RerankRequest {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    query: String,
    /// Up to 2048 documents.
    documents: Option<Vec<Document>>,
    /// The documents in the form of TEI, whose answer is a list.
    texts: Option<Vec<String>>,
    /// Number of most relevant documents to name; all by default.
    #[schema(minimum = 1)]
    top_n: Option<usize>,
    /// Whether the answer repeats the documents; false by default.
    #[serde(default, alias = "return_text")]
    return_documents: bool,
    /// Give the model's scores instead of numbers from 0 to 1.
    #[serde(default)]
    raw_scores: bool,
    /// The contrary of `raw_scores`, true by default; as in vLLM.
    use_activation: Option<bool>,
    /// The same, as vLLM named it before.
    activation: Option<bool>,
    /// Leave out the ends of documents that are too long; false by default.
    #[serde(default)]
    truncate: bool,
    /// Leave out what exceeds this many tokens, special ones included, of a query and its document;
    /// -1 for what the context holds; as in vLLM.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// The user of the request: the users of a key share its part of the machine evenly.
    user: Option<String>,
}

/// A document, as a text or in an object.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or an object with text")]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// The most relevant documents, the best first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Ranked {
    /// In the form of Jina and Cohere.
    List(RankedList),
    /// In the form of TEI.
    Plain(Vec<RankedText>),
}

/// The most relevant documents, the best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankedList {
    id: String,
    object: &'static str,
    model: String,
    results: Vec<RankedDocument>,
    usage: RankingUsage,
    /// What the request asked for and did not get; an extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    #[schema(required = false)]
    warnings: Warnings,
}

/// A document and its relevance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankedDocument {
    /// Its place in the request.
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<RankedContent>,
}

/// The text of a document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankedContent {
    text: String,
}

/// A document and its relevance, in the form of TEI.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RankedText {
    /// Its place in the request.
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// A request that was read, with its documents and the ids of each with the query.
struct Asked {
    request: RerankRequest,
    documents: Vec<String>,
    pairs: Vec<EncodedPair>,
    param: &'static str,
    warnings: Warnings,
}

/// Members that change the scores and are not supported.
const REFUSED: [Unsupported; 1] =
    [("rank_fields", |value| is_off(value) || *value == json!(["text"]))];

/// Members that change nothing, and what a warning says of them.
const UNUSED: [(&str, &str); 3] =
    [("max_chunks_per_doc", WHOLE), ("max_tokens_per_doc", WHOLE), ("overlap_tokens", WHOLE)];
const WHOLE: &str = "documents are scored whole; truncate or truncate_prompt_tokens cut them";

/// Documents in the order of their relevance for a query.
#[utoipa::path(post, path = "/v1/rerank", tag = "Ranking", request_body = RerankRequest,
    responses((status = 200, body = Ranked), (status = 501, body = Problem), Refusals<Problem>))]
pub(crate) async fn rerank(context: RequestContext, body: Body) -> Result<Json<Ranked>, HttpError> {
    let (context, asked) = prepare_within(context, body, read).await?;
    let Asked { request, mut documents, pairs, param, warnings } = asked;
    let options = RequestOptions { user: request.user, ..RequestOptions::default() };
    let Scores { values: scores, usage } = computed(&context, pairs, options, param).await?;
    let value = |index: usize| match request.raw_scores
        || request.use_activation.or(request.activation) == Some(false)
    {
        true => scores[index],
        false => probability(scores[index]),
    };
    let best = best_first(&scores, request.top_n);
    let mut text =
        |index: usize| request.return_documents.then(|| std::mem::take(&mut documents[index]));
    if request.texts.is_some() {
        let item = |index| RankedText { index, score: value(index), text: text(index) };
        return Ok(Json(Ranked::Plain(best.into_iter().map(item).collect())));
    }
    let item = |index| RankedDocument {
        index,
        relevance_score: value(index),
        document: text(index).map(|text| RankedContent { text }),
    };
    Ok(Json(Ranked::List(RankedList {
        id: context.request.id.name.to_string(),
        object: "list",
        model: context.service().info().name.clone(),
        results: best.into_iter().map(item).collect(),
        usage,
        warnings,
    })))
}

/// The numbers of documents by their score, the first of equals first.
fn best_first(scores: &[f32], most: Option<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(most.unwrap_or(usize::MAX));
    order
}

fn read(service: &Service, body: &Value) -> Result<Asked, HttpError> {
    let mut request: RerankRequest = wire::read(body)?;
    unsupported::refuse(body, &REFUSED)?;
    unsupported::refuse(body, &TRUNCATION)?;
    let mut warnings = Warnings::default();
    warnings.add_given(body, &UNUSED);
    if request.top_n == Some(0) {
        return Err(HttpError::member("top_n", "must be at least 1"));
    }
    if request.query.is_empty() {
        return Err(HttpError::member("query", "is empty"));
    }
    let (documents, param) = match (request.documents.take(), &mut request.texts) {
        (Some(_), Some(_)) => {
            return Err(HttpError::member("texts", "cannot be given beside documents"));
        }
        (Some(documents), None) => {
            (documents.into_iter().map(Document::text).collect(), "documents")
        }
        (None, Some(texts)) => (std::mem::take(texts), "texts"),
        (None, None) => return Err(wire::missing("documents")),
    };
    let documents: Vec<String> = documents;
    let queries = std::slice::from_ref(&request.query);
    let most = most_tokens(request.truncate, request.truncate_prompt_tokens)?;
    let pairs = checked(service, queries, (&documents, param), most)?;
    Ok(Asked { request, documents, pairs, param, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_equals_in_their_order() {
        let scores = [0.5, -1.0, 2.0, 0.5];
        assert_eq!(best_first(&scores, None), [2, 0, 3, 1]);
        assert_eq!(best_first(&scores, Some(2)), [2, 0]);
        assert_eq!(best_first(&scores, Some(9)).len(), 4);
    }
}
