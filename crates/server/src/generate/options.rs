//! The members that say how an answer is given, which chat and text completions share: how many
//! choices, as a stream or not, for which user, and in which part of the caches.

use crate::generate::speculation;
use crate::http::error::HttpError;
use api::RequestOptions;
use serde::Deserialize;
use utoipa::ToSchema;

/// Most answers to one request, all its prompts together.
pub(crate) const MAX_CHOICES: usize = 128;

/// Most bytes of `cache_salt`.
const MAX_SALT_BYTES: usize = 256;

/// How the answer shall be given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = TermsBody)]
pub(crate) struct OptionsBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// Choices for each prompt.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<usize>,
    /// Answer with server-sent events.
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// The user of the request: the users of a key share its part of the machine evenly.
    user: Option<String>,
    /// As `user`.
    safety_identifier: Option<String>,
    /// Only requests with the same salt find each other's prompts in the caches; as in vLLM.
    #[schema(min_length = 1, max_length = 256)]
    cache_salt: Option<String>,
    /// Lower goes first, 0 is ordinary; an extension.
    #[schema(minimum = -2147483648, maximum = 2147483647)]
    priority: Option<i64>,
    /// Report the times with every chunk of a stream; an extension.
    timings_per_token: Option<bool>,
    /// Report how much of the prompt is computed, in chunks of a stream before its first text; an
    /// extension.
    return_progress: Option<bool>,
    /// Give a receipt of the answer, with which it can be computed again; an extension.
    #[serde(rename = "receipt")]
    _receipt: Option<bool>,
    /// How the next tokens are drafted, as `--speculate` says it; an extension.
    speculate: Option<String>,
    /// Most tokens drafted in a step; -1 for no bound. As in llama.cpp.
    #[serde(rename = "speculative.n_max")]
    #[schema(minimum = -1)]
    n_max: Option<i64>,
}

/// What a stream reports.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
struct StreamOptions {
    /// A last chunk with the usage.
    include_usage: Option<bool>,
    /// With `include_usage`, the usage so far in every chunk of a choice; as in vLLM.
    continuous_usage_stats: Option<bool>,
    /// Taken; nothing is obfuscated.
    #[serde(rename = "include_obfuscation")]
    _include_obfuscation: Option<bool>,
}

/// What a stream reports of the computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Telemetry {
    /// Times with every chunk.
    pub timings: bool,
    /// The progress of the prompt.
    pub progress: bool,
    /// The usage so far with every chunk.
    pub usage: bool,
}

impl Telemetry {
    /// Whether the events of the prompt are needed.
    pub fn any(self) -> bool {
        self.progress || self.counts_tokens()
    }

    /// Whether chunks tell how many tokens were generated.
    pub fn counts_tokens(self) -> bool {
        self.timings || self.usage
    }
}

impl OptionsBody {
    /// How many answers each prompt gets.
    ///
    /// # Errors
    /// If the number is out of range.
    pub fn choices(&self) -> Result<usize, HttpError> {
        match self.n.unwrap_or(1) {
            n @ 1..=MAX_CHOICES => Ok(n),
            n => Err(HttpError::member("n", format!("must be 1 to {MAX_CHOICES}, not {n}"))),
        }
    }

    /// Whether the client wants events, and a last one with the usage.
    pub fn stream(&self) -> (bool, bool) {
        let usage = self.stream_options.and_then(|options| options.include_usage);
        (self.stream.unwrap_or(false), usage.unwrap_or(false))
    }

    /// What a stream reports of the computation.
    pub fn telemetry(&self) -> Telemetry {
        let stream = self.stream == Some(true);
        let options = self.stream_options.unwrap_or_default();
        let continuous = options.continuous_usage_stats == Some(true);
        Telemetry {
            timings: stream && self.timings_per_token == Some(true),
            progress: stream && self.return_progress == Some(true),
            usage: stream && continuous && options.include_usage == Some(true),
        }
    }

    /// On what terms the request is computed.
    ///
    /// # Errors
    /// If a member is out of range or cannot be read.
    pub fn options(&self) -> Result<RequestOptions, HttpError> {
        let wide = self.priority.unwrap_or(0);
        let priority = i32::try_from(wide).map_err(|_| {
            HttpError::member("priority", format!("must be an integer of 32 bits, not {wide}"))
        })?;
        let user = self.user.clone().or_else(|| self.safety_identifier.clone());
        let (cache_salt, progress) = (self.cache_salt()?, self.telemetry().any());
        let rest = RequestOptions::default();
        let mut options = RequestOptions { priority, user, cache_salt, progress, ..rest };
        speculation::apply(self.speculate.as_deref(), self.n_max, &mut options)?;
        Ok(options)
    }

    /// The same for answers that do not report progress.
    ///
    /// # Errors
    /// As [`options`](Self::options).
    pub fn without_progress(&self) -> Result<RequestOptions, HttpError> {
        Ok(RequestOptions { progress: false, ..self.options()? })
    }

    fn cache_salt(&self) -> Result<Option<String>, HttpError> {
        match &self.cache_salt {
            Some(salt) if !(1..=MAX_SALT_BYTES).contains(&salt.len()) => {
                let found = salt.len();
                let problem = format!("must have 1 to {MAX_SALT_BYTES} bytes, not {found}");
                Err(HttpError::member("cache_salt", problem))
            }
            salt => Ok(salt.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire;
    use serde_json::{Value, json};

    fn read(body: &Value) -> Result<RequestOptions, HttpError> {
        wire::read::<OptionsBody>(body)?.without_progress()
    }

    fn check_error(body: Value, param: &str) {
        let read = wire::read::<OptionsBody>(&body);
        let error = read.and_then(|options| options.choices().and(options.options()));
        assert_eq!(error.expect_err(&body.to_string()).body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn impossible_terms_are_named() {
        check_error(json!({"n": 0}), "n");
        check_error(json!({"n": 129}), "n");
        check_error(json!({"priority": 1u64 << 40}), "priority");
        check_error(json!({"speculate": "ngram:0"}), "speculate");
        check_error(
            json!({"stream_options": {"include_usage": 1}}),
            "stream_options.include_usage",
        );
        check_error(json!({"user": 3}), "user");
        check_error(json!({"cache_salt": 3}), "cache_salt");
        check_error(json!({"cache_salt": ""}), "cache_salt");
        check_error(json!({"cache_salt": "é".repeat(129)}), "cache_salt");
    }

    #[test]
    fn users_have_two_names_and_salts_one() {
        let user = |body| read(&body).unwrap().user;
        assert_eq!(user(json!({"user": "a", "safety_identifier": "b"})), Some("a".into()));
        assert_eq!(user(json!({"safety_identifier": "b"})), Some("b".into()));
        assert_eq!(user(json!({})), None);
        let salt = |body| read(&body).unwrap().cache_salt;
        assert_eq!(salt(json!({"cache_salt": "é".repeat(128)})), Some("é".repeat(128)));
        assert_eq!(salt(json!({"cache_salt": null})), None);
    }
}
