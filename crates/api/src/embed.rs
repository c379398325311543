//! Embeddings: one vector for a text.

use crate::error::ApiError;
use crate::request::{Prompt, RequestOptions};
use crate::service::Service;
use crate::usage_counter::Usage;
use engine::{Embed, Event, Request};

/// An embedding with its token counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// The vector, as wide as the model's hidden states.
    pub vector: Vec<f32>,
    /// Tokens of the prompt, and those found in the cache.
    pub usage: Usage,
}

impl Service {
    /// Computes the embedding of `prompt`; a text gets the model's special tokens. Dropping the
    /// future cancels the computation.
    pub async fn embed(
        &self,
        prompt: &Prompt,
        embed: Embed,
        terms: &RequestOptions,
    ) -> Result<Embedding, ApiError> {
        let prompt = self.prompt_ids(prompt, true)?;
        let mut usage = Usage { prompt_tokens: prompt.len(), ..Usage::default() };
        let space = self.partition.space;
        let request = Request { prompt, embed: Some(embed), space, ..Request::default() };
        let mut generation = self.submit(request, terms)?;
        let mut vector = None;
        loop {
            match generation.next().await {
                Some(Event::Admitted { cached_tokens, .. }) => usage.cached_tokens = cached_tokens,
                Some(Event::Embedding(found)) => vector = Some(found),
                Some(Event::Finished(finished)) => match ApiError::of(&finished.outcome) {
                    Some(error) => return Err(error),
                    None => break,
                },
                Some(_) => {}
                None => return Err(ApiError::Stopped),
            }
        }
        let vector = vector.ok_or_else(|| ApiError::Engine("no vector was made".into()))?;
        Ok(Embedding { vector, usage })
    }
}
