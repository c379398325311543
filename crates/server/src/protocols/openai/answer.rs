//! What all OpenAI answers share: their heading, the usage and how a stream ends.

use crate::generate::timings::{PromptProgress, Timings};
use crate::http::app::unix_now;
use crate::http::error::HttpError;
use crate::http::protocol::Protocol;
use crate::http::random;
use crate::http::sse::Frame;
use crate::protocols::openai::protocol::OpenAi;
use crate::protocols::warnings::Warnings;
use api::Usage;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The members that every chunk and answer begins with.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub id: String,
    created: u64,
    model: String,
    fingerprint: String,
}

/// An answer, or a chunk of one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion<C> {
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    model: String,
    /// Changes with the program and the model.
    system_fingerprint: String,
    choices: Vec<C>,
    /// Of a stream only the last chunk has it, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CompletionUsage>)]
    usage: Option<Option<CompletionUsage>>,
    /// Of a stream only the last chunk has it, or every one if that was asked for; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    /// Only in chunks of a stream that was asked for it; an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
    /// What the request asked for and did not get; of a stream only the first chunk has it. An
    /// extension.
    #[serde(skip_serializing_if = "Warnings::is_empty")]
    #[schema(required = false)]
    warnings: Warnings,
}

/// The members of an answer or chunk that its choices do not hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras<'a> {
    /// The usage, or that the member is null.
    pub usage: Option<Option<&'a Usage>>,
    pub timings: Option<Timings>,
    pub progress: Option<PromptProgress>,
    pub warnings: Option<&'a Warnings>,
}

impl Heading {
    /// A new answer of `model`, its id beginning with `prefix`.
    pub fn new(prefix: &str, model: &str) -> Self {
        Self {
            id: random::id(prefix),
            created: unix_now(),
            model: model.to_owned(),
            fingerprint: fingerprint(model),
        }
    }

    /// The object named `object` with these choices and other members.
    pub fn json<C: Serialize>(
        &self,
        object: &'static str,
        choices: Vec<C>,
        extras: Extras<'_>,
    ) -> Value {
        json!(Completion {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: self.fingerprint.clone(),
            choices,
            usage: extras.usage.map(|used| used.map(usage)),
            timings: extras.timings,
            prompt_progress: extras.progress,
            warnings: extras.warnings.cloned().unwrap_or_default(),
        })
    }
}

/// The last frames of a stream, with the chunk `last` before them.
pub(crate) fn close(last: Option<Value>) -> Vec<Frame> {
    last.map(Frame::Data).into_iter().chain([Frame::Word("[DONE]")]).collect()
}

/// The last frames of a stream that breaks off.
pub(crate) fn refused(error: &HttpError) -> Vec<Frame> {
    vec![Frame::Named("error".into(), OpenAi::json(error)), Frame::Word("[DONE]")]
}

/// Token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CompletionUsage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
}

/// What became of the prompt's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Found in the cache.
    cached_tokens: usize,
    /// Computed, and kept there.
    cache_write_tokens: usize,
}

/// What the generated tokens were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct CompletionTokensDetails {
    reasoning_tokens: usize,
    /// Tokens of the prediction that the answer has.
    accepted_prediction_tokens: usize,
    /// Tokens of the prediction that the answer lacks.
    rejected_prediction_tokens: usize,
}

/// Token counts as OpenAI writes them.
fn usage(usage: &Usage) -> CompletionUsage {
    CompletionUsage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        total_tokens: usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details: PromptTokensDetails {
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        },
        completion_tokens_details: CompletionTokensDetails {
            reasoning_tokens: usage.reasoning_tokens,
            accepted_prediction_tokens: usage.predicted_tokens,
            rejected_prediction_tokens: usage.unpredicted_tokens,
        },
    }
}

/// Changes when the program or the model does: FNV-1a over both names.
fn fingerprint(model: &str) -> String {
    let names = env!("CARGO_PKG_VERSION").bytes().chain(model.bytes());
    format!("fp_{:010x}", api::fnv1a(names) & 0xff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_of_the_model() {
        assert_eq!(fingerprint("a"), fingerprint("a"));
        assert_ne!(fingerprint("a"), fingerprint("b"));
        assert_eq!(fingerprint("a").len(), "fp_".len() + 10);
    }

    #[test]
    fn parts_of_the_usage_add_up() {
        let counts =
            Usage { prompt_tokens: 3, completion_tokens: 4, cached_tokens: 1, ..Usage::default() };
        let told = usage(&counts);
        assert_eq!(told.total_tokens, 7);
        assert_eq!(told.prompt_tokens_details.cache_write_tokens, 2);
    }
}
