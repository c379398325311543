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
mod scores;

use crate::http::app::App;
use crate::http::protocol::Protocol;
use axum::routing::post;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
