//! Anthropic's form of the list of models, for requests with its header `anthropic-version`.

use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::protocols::anthropic::protocol::Anthropic;
use axum::Json;
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The header that Anthropic's clients send.
const VERSION: &str = "anthropic-version";

/// Models of a page, unless the request says how many.
const PAGE: usize = 20;
const MAX_PAGE: usize = 1000;

/// A page of models.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AnthropicModelList)]
pub(crate) struct ModelPage {
    data: Vec<Model>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// A model.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AnthropicModel)]
pub(crate) struct Model {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
    display_name: String,
    /// When the server started, as in RFC 3339.
    created_at: String,
    /// Always `active`.
    lifecycle: &'static str,
    /// Tokens that the context holds, answer included.
    max_input_tokens: Option<usize>,
    /// As `max_input_tokens`.
    max_tokens: Option<usize>,
}

/// The query of a request for models.
#[derive(Debug, Default, Deserialize)]
struct Wanted {
    after_id: Option<String>,
    before_id: Option<String>,
    limit: Option<usize>,
}

/// Whether a request with these headers is one of Anthropic's clients.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

/// What a request gets: `made`, or its error, in Anthropic's form.
pub(crate) fn response<T: Serialize>(made: Result<T, HttpError>) -> Response {
    match made {
        Ok(made) => Json(made).into_response(),
        Err(error) => (error.status, Json(Anthropic::json(&error))).into_response(),
    }
}

impl Model {
    /// The model `id`, available since `created` in seconds since 1970.
    pub fn new(id: String, created: u64, context: Option<usize>) -> Self {
        let created = i64::try_from(created).ok().and_then(|at| DateTime::from_timestamp(at, 0));
        Self {
            kind: "model",
            display_name: id.clone(),
            id,
            created_at: created.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Secs, true),
            lifecycle: "active",
            max_input_tokens: context,
            max_tokens: context,
        }
    }
}

impl ModelPage {
    /// The page of `models` that the query of `uri` asks for.
    ///
    /// # Errors
    /// If the query cannot be read, or the page is out of range.
    pub fn of(models: Vec<Model>, uri: &Uri) -> Result<Self, HttpError> {
        let wanted = Query::<Wanted>::try_from_uri(uri).map_err(|rejection| {
            HttpError::request(StatusCode::BAD_REQUEST, rejection.body_text())
        })?;
        Self::page(models, &wanted)
    }

    fn page(models: Vec<Model>, wanted: &Wanted) -> Result<Self, HttpError> {
        let limit = wanted.limit.unwrap_or(PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            let problem = format!("must be 1 to {MAX_PAGE}, not {limit}");
            return Err(HttpError::member("limit", problem));
        }
        let place = |name: &str, id: &str| {
            let place = models.iter().position(|model| model.id == id);
            place.ok_or_else(|| HttpError::at(name, format!("there is no model {id}")))
        };
        let after = wanted.after_id.as_deref().map(|id| place("after_id", id)).transpose()?;
        let before = wanted.before_id.as_deref().map(|id| place("before_id", id)).transpose()?;
        let end = before.unwrap_or(models.len());
        let start = after.map_or(0, |at| at + 1).min(end);
        let (shown, has_more) = match (before, after) {
            // The nearest ones before it.
            (Some(_), None) => (start.max(end.saturating_sub(limit))..end, end - start > limit),
            _ => (start..end.min(start + limit), end - start > limit),
        };
        let data = models[shown].to_vec();
        let id = |model: &Model| model.id.clone();
        let (first_id, last_id) = (data.first().map(id), data.last().map(id));
        Ok(Self { data, has_more, first_id, last_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The ids of the page, with a `+` if there are more; `None` if there is no such page.
    fn page(query: &str) -> Option<String> {
        let models = ["a", "b", "c", "d", "e"].map(|id| Model::new(id.into(), 0, None));
        let uri = format!("/v1/models?{query}").parse().unwrap();
        let page = ModelPage::of(models.into(), &uri).ok()?;
        let ids: String = page.data.iter().map(|model| &*model.id).collect();
        assert_eq!(page.first_id, page.data.first().map(|model| model.id.clone()));
        assert_eq!(page.last_id, page.data.last().map(|model| model.id.clone()));
        Some(if page.has_more { ids + "+" } else { ids })
    }

    #[test]
    fn pages_follow_each_other_in_either_direction() {
        for (query, expected) in [
            ("", Some("abcde")),
            ("limit=2", Some("ab+")),
            ("limit=2&after_id=b", Some("cd+")),
            ("limit=2&after_id=c", Some("de")),
            ("after_id=e", Some("")),
            ("limit=2&before_id=d", Some("bc+")),
            ("limit=2&before_id=c", Some("ab")),
            ("limit=0", None),
            ("limit=1001", None),
            ("limit=x", None),
            ("after_id=z", None),
        ] {
            assert_eq!(page(query).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn a_model_has_the_members_that_clients_read() {
        let model = Model::new("m".into(), 1_700_000_000, Some(256));
        let expected = json!({"type": "model", "id": "m", "display_name": "m",
            "created_at": "2023-11-14T22:13:20Z", "lifecycle": "active",
            "max_input_tokens": 256, "max_tokens": 256});
        assert_eq!(json!(model), expected);
    }
}
