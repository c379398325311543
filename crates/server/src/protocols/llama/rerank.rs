//! `POST /rerank`: refused, because no model that is served can rank.

use crate::http::error::HttpError;

/// All paths under which clients look for a ranking.
pub(crate) const PATHS: [&str; 4] = ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"];

/// Refuses to rank documents.
pub(crate) async fn rerank() -> HttpError {
    let message = "the model does not support reranking: it has no head that scores documents";
    HttpError::not_supported(message)
}
