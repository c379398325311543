//! Embeddings, for every protocol that has them.

use crate::generate::mixed_prompts::MixedPrompt;
use crate::http::error::HttpError;
use crate::http::request::ModelContext;
use crate::http::shutdown::Phase;
use api::{ApiError, Embedding, Prompt, RequestOptions, Service};
use engine::{Embed, Field};
use formats::Pooling;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use text::EncodedPair;
use utoipa::ToSchema;

/// Most texts of one request.
pub(crate) const MAX_TEXTS: usize = 2048;
/// Most of them that are computed or wait at one time.
const MAX_CONCURRENT_TEXTS: usize = 16;

/// How texts are prepared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextOptions<'a> {
    /// What is computed.
    pub embed: Embed,
    /// The name of the prompt that is put before each; `None` for the checkpoint's default.
    pub prompt_name: Option<&'a str>,
    /// Number of tokens, or that of the context if it is less, at which longer texts end; `None` to
    /// refuse texts that are too long.
    pub most_tokens: Option<usize>,
}

/// The ids of texts, which take time to find; there must be 1 to [`MAX_TEXTS`] in the field
/// `param`.
pub(crate) fn tokenized(
    service: &Service,
    texts: Vec<MixedPrompt>,
    param: &str,
    options: &TextOptions<'_>,
) -> Result<Vec<Prompt>, HttpError> {
    count(texts.len(), param)?;
    let before = service.embedding_prompt(options.prompt_name);
    let before = before.map_err(|error| HttpError::of(error, param))?;
    let ids = |(at, text): (usize, MixedPrompt)| {
        let text = text.after(before);
        let shortened = options.most_tokens.is_some();
        let ids = if shortened { text.first_ids(service) } else { text.ids(service) }?;
        let checked = service.checked_text(ids, options.embed, options.most_tokens);
        let checked = checked.map_err(|error| refused(error, &format!("{param}[{at}]")))?;
        Ok(Prompt::Ids(checked))
    };
    texts.into_iter().enumerate().map(ids).collect()
}

/// How the states of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EmbeddingPooling {
    Mean,
    Cls,
    Last,
    Max,
}

impl From<EmbeddingPooling> for Pooling {
    fn from(pooling: EmbeddingPooling) -> Self {
        match pooling {
            EmbeddingPooling::Mean => Self::Mean,
            EmbeddingPooling::Cls => Self::Cls,
            EmbeddingPooling::Last => Self::Last,
            EmbeddingPooling::Max => Self::Max,
        }
    }
}

/// Number of tokens at which longer texts end, by the members `truncate` and
/// `truncate_prompt_tokens`; `None` to refuse texts that are too long.
///
/// # Errors
/// If `truncate_prompt_tokens` is neither positive nor -1.
pub(crate) fn most_tokens(
    truncate: bool,
    truncate_prompt_tokens: Option<i64>,
) -> Result<Option<usize>, HttpError> {
    match truncate_prompt_tokens {
        None => Ok(truncate.then_some(usize::MAX)),
        Some(-1) => Ok(Some(usize::MAX)),
        Some(most @ 1..) => Ok(Some(usize::try_from(most).unwrap_or(usize::MAX))),
        Some(other) => {
            let problem = format!("must be at least 1, or -1 for the context, not {other}");
            Err(HttpError::member("truncate_prompt_tokens", problem))
        }
    }
}

/// Refuses no texts, and too many.
pub(crate) fn count(texts: usize, param: &str) -> Result<(), HttpError> {
    match texts {
        1..=MAX_TEXTS => Ok(()),
        _ => {
            Err(HttpError::member(param, format!("must hold 1 to {MAX_TEXTS} texts, not {texts}")))
        }
    }
}

/// The vectors of all `prompts`, in their order.
pub(crate) async fn compute(
    context: &ModelContext,
    prompts: Vec<Prompt>,
    embed: Embed,
    options: RequestOptions,
) -> Result<Vec<Embedding>, HttpError> {
    let texts = prompts.into_iter().map(|prompt| TextWork::Embed(prompt, embed)).collect();
    each(context, texts, options, "input").await
}

/// What is computed of a text.
#[derive(Debug)]
pub(crate) enum TextWork {
    /// Its vector.
    Embed(Prompt, Embed),
    /// The score of a pair of texts, as a vector of one value.
    Score(EncodedPair),
}

/// What is computed of each text of the field `param`, in their order, some at a time.
pub(crate) async fn each(
    context: &ModelContext,
    texts: Vec<TextWork>,
    options: RequestOptions,
    param: &str,
) -> Result<Vec<Embedding>, HttpError> {
    let (app, id) = (&context.request.app, &context.request.id);
    let name = Some(id.name.to_string());
    let options = &RequestOptions { name, ..context.request.on_behalf(options) };
    let service = &context.service().for_options(options);
    let at_once = service.engine.queue().clamp(1, MAX_CONCURRENT_TEXTS);
    // Each is paid for once it is there, whatever becomes of the others.
    let one = |text: TextWork| async move {
        let found = match text {
            TextWork::Embed(prompt, embed) => service.embed(&prompt, embed, options).await,
            TextWork::Score(pair) => service.score(pair, options).await,
        };
        found.inspect(|found| id.charge.spend(found.usage.prompt_tokens))
    };
    let all = stream::iter(texts).map(one).buffered(at_once).try_collect();
    tokio::select! {
        biased;
        // Before the end of the server: an engine that stops says why.
        found = all => found.map_err(|error| refused(error, param)),
        () = app.life.reached(Phase::Closing) => Err(HttpError::shutting_down()),
    }
}

/// The error of the text at `path`.
pub(crate) fn refused(error: ApiError, path: &str) -> HttpError {
    match error {
        ApiError::Invalid { field: Field::Prompt, message } => HttpError::at(path, message),
        other => HttpError::of(other, path),
    }
}

/// Tokens of all their texts.
pub(crate) fn tokens(vectors: &[Embedding]) -> usize {
    vectors.iter().map(|vector| vector.usage.prompt_tokens).sum()
}
