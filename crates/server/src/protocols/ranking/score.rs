//! `POST /v1/score`: the score of each of two lists of texts with each other, as vLLM has it.

use super::scores::{RankingUsage, Scores, TRUNCATION, checked, computed};
use crate::generate::embeddings::most_tokens;
use crate::generate::flow::prepare_within;
use crate::http::app::unix_now;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire::{self, Texts};
use crate::protocols::openai::problem::Problem;
use crate::protocols::unsupported;
use api::{RequestOptions, Service, probability};
use axum::Json;
use axum::body::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use text::EncodedPair;
use utoipa::ToSchema;

/// Texts that are scored with each other.
#[derive(Debug, Deserialize, ToSchema)]
struct ScoreRequest {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// A query, for all of the second texts, or one for each of them.
    #[serde(alias = "queries")]
    text_1: Texts,
    /// A document, or several.
    #[serde(alias = "documents")]
    text_2: Texts,
    /// Give numbers from 0 to 1, which is the default, rather than the model's scores.
    use_activation: Option<bool>,
    /// The same, as vLLM named it before.
    activation: Option<bool>,
    /// Leave out the ends of second texts that are too long; false by default; an extension.
    #[serde(default)]
    truncate: bool,
    /// Leave out what exceeds this many tokens, special ones included, of two texts; -1 for
    /// what the context holds; as in vLLM.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// The user of the request: the users of a key share its part of the machine evenly.
    user: Option<String>,
}

/// The scores, in the order of the second texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScoreList {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<ScoreItem>,
    usage: RankingUsage,
}

/// A score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScoreItem {
    index: usize,
    object: &'static str,
    score: f32,
}

/// Scores of texts with each other.
#[utoipa::path(post, path = "/v1/score", tag = "Ranking", request_body = ScoreRequest,
    responses((status = 200, body = ScoreList), (status = 501, body = Problem), Refusals<Problem>))]
pub(crate) async fn score(
    context: RequestContext,
    body: Body,
) -> Result<Json<ScoreList>, HttpError> {
    let (context, (user, activated, pairs)) = prepare_within(context, body, read).await?;
    let options = RequestOptions { user, ..RequestOptions::default() };
    let Scores { values, usage } = computed(&context, pairs, options, "text_2").await?;
    let item = |(index, score): (usize, f32)| ScoreItem {
        index,
        object: "score",
        score: if activated { probability(score) } else { score },
    };
    Ok(Json(ScoreList {
        id: context.request.id.name.to_string(),
        object: "list",
        created: unix_now(),
        model: context.service().info().name.clone(),
        data: values.into_iter().enumerate().map(item).collect(),
        usage,
    }))
}

fn read(
    service: &Service,
    body: &Value,
) -> Result<(Option<String>, bool, Vec<EncodedPair>), HttpError> {
    let request: ScoreRequest = wire::read(body)?;
    unsupported::refuse(body, &TRUNCATION)?;
    let (first, second) = (request.text_1.all(), request.text_2.all());
    if first.len() != 1 && first.len() != second.len() {
        let (expected, found) = (second.len(), first.len());
        let problem = format!("must hold 1 text or {expected} as text_2 does, not {found}");
        return Err(HttpError::member("text_1", problem));
    }
    let most = most_tokens(request.truncate, request.truncate_prompt_tokens)?;
    let pairs = checked(service, &first, (&second, "text_2"), most)?;
    Ok((request.user, request.use_activation.or(request.activation).unwrap_or(true), pairs))
}
