//! The request of `POST /infill`.

use crate::generate::flow::Reply;
use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::llama::answer::CompletionAnswer;
use crate::protocols::llama::completion::{self, AnswerOptions};
use crate::protocols::llama::sampling::{self, LlamaSampling};
use api::{InfillRequest, SamplingOptions, Service};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A text with a gap. All three are read from one object.
#[derive(Debug, ToSchema)]
pub(crate) struct InfillBody {
    #[serde(flatten)]
    _gap: GapBody,
    #[serde(flatten)]
    _how: AnswerOptions,
    #[serde(flatten)]
    _sampling: LlamaSampling,
}

/// What stands around the gap.
#[derive(Debug, Deserialize, ToSchema)]
struct GapBody {
    /// What stands before the gap.
    input_prefix: Option<String>,
    /// What stands after it.
    input_suffix: Option<String>,
    /// Other files that may help.
    input_extra: Option<Vec<Extra>>,
    /// What the filling begins with.
    prompt: Option<String>,
}

/// Another file.
#[derive(Debug, Deserialize, ToSchema)]
struct Extra {
    filename: Option<String>,
    text: String,
}

/// Reads and prepares a request.
pub(crate) fn read(service: &Service, body: &Value) -> Result<Reply<CompletionAnswer>, HttpError> {
    if !service.fills() {
        let message = "the model has no tokens that mark a gap to be filled in";
        return Err(HttpError::request(StatusCode::NOT_IMPLEMENTED, message));
    }
    let (sampling, grammar) = (sampling::read(body, service)?, sampling::grammar(body));
    let (body, how): (GapBody, AnswerOptions) = (wire::read(body)?, wire::read(body)?);
    let extra = body.input_extra.unwrap_or_default().into_iter();
    let infill = service.infill(&InfillRequest {
        prefix: body.input_prefix.unwrap_or_default(),
        suffix: body.input_suffix.unwrap_or_default(),
        files: extra.map(|one| (one.filename.unwrap_or_default(), one.text)).collect(),
        opening: body.prompt.unwrap_or_default(),
    });
    let infill = infill.map_err(|error| HttpError::of(error, "input_prefix"))?;
    let sampling = SamplingOptions { stop_ids: infill.stop_ids, ..sampling };
    completion::call(service, vec![infill.prompt], how, sampling, grammar)
}
