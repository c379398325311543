//! Embeddings, for every protocol that has them.

use crate::generate::mixed_prompts::MixedPrompt;
use crate::http::error::HttpError;
use crate::http::request::RequestContext;
use crate::http::shutdown::Phase;
use api::{
    ApiError, Embed, Embedding, Field, Pooling, Prompt, RequestOptions, SamplingOptions, Service,
    TextRequest,
};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use utoipa::ToSchema;

/// Most texts of one request.
pub(crate) const MAX_TEXTS: usize = 2048;
/// Most of them that are computed or wait at one time.
const MAX_CONCURRENT_TEXTS: usize = 16;

/// The ids of texts, which take time to find; there must be 1 to [`MAX_TEXTS`] in the field
/// `param`.
pub(crate) fn prompts(
    service: &Service,
    texts: Vec<Prompt>,
    param: &str,
) -> Result<Vec<Prompt>, HttpError> {
    count(texts.len(), param)?;
    let ids = |(at, prompt)| {
        let sampling = SamplingOptions::default();
        let request = TextRequest { prompt, add_special: true, sampling, grammar: None };
        let prepared = service.prepare_text(&request);
        let prepared = prepared.map_err(|error| refused(error, &format!("{param}[{at}]")))?;
        Ok(Prompt::Ids(prepared.prompt().to_vec()))
    };
    texts.into_iter().enumerate().map(ids).collect()
}

/// How the states of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EmbeddingPooling {
    Mean,
    Last,
}

impl From<EmbeddingPooling> for Pooling {
    fn from(pooling: EmbeddingPooling) -> Self {
        match pooling {
            EmbeddingPooling::Mean => Self::Mean,
            EmbeddingPooling::Last => Self::Last,
        }
    }
}

/// As [`prompts`], of texts in the forms of llama.cpp's server.
pub(crate) fn tokenized(
    service: &Service,
    texts: &[MixedPrompt],
    param: &str,
) -> Result<Vec<Prompt>, HttpError> {
    count(texts.len(), param)?;
    let ids = texts.iter().map(|text| text.ids(service).map(Prompt::Ids));
    prompts(service, ids.collect::<Result<_, _>>()?, param)
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
    context: &RequestContext,
    prompts: Vec<Prompt>,
    embed: Embed,
    options: RequestOptions,
) -> Result<Vec<Embedding>, HttpError> {
    let (app, id) = (&context.app, &context.id);
    let name = Some(id.name.to_string());
    let options = &RequestOptions { name, ..context.on_behalf(options) };
    let service = &app.service.for_options(options);
    let at_once = app.service.engine.queue().clamp(1, MAX_CONCURRENT_TEXTS);
    // Each is paid for once it is there, whatever becomes of the others.
    let one = |prompt: Prompt| async move {
        let found = service.embed(&prompt, embed, options).await;
        found.inspect(|found| id.charge.spend(found.usage.prompt_tokens))
    };
    let all = stream::iter(prompts).map(one).buffered(at_once).try_collect();
    tokio::select! {
        biased;
        () = app.life.reached(Phase::Closing) => Err(HttpError::shutting_down()),
        vectors = all => vectors.map_err(|error| refused(error, "input")),
    }
}

/// The error of the text at `path`.
fn refused(error: ApiError, path: &str) -> HttpError {
    match error {
        ApiError::Invalid { field: Field::Prompt, message } => HttpError::at(path, message),
        other => HttpError::of(other, path),
    }
}

/// Tokens of all their texts.
pub(crate) fn tokens(vectors: &[Embedding]) -> usize {
    vectors.iter().map(|vector| vector.usage.prompt_tokens).sum()
}
