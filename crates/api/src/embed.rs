//! One vector of a text instead of an answer.

use crate::error::ApiError;
use crate::request::{Prompt, RequestOptions};
use crate::service::Service;
use crate::usage_counter::Usage;
use engine::{Embed, Event, Request};

/// A vector and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// As many values as the model's states have.
    pub vector: Vec<f32>,
    /// Tokens of the prompt, and those found in the cache.
    pub usage: Usage,
}

impl Service {
    /// Tokenizes `prompt`, as a text of its own where it is one, and makes one vector of it.
    /// Dropping the future cancels the computation.
    pub async fn embed(
        &self,
        prompt: &Prompt,
        embed: Embed,
        terms: &RequestOptions,
    ) -> Result<Embedding, ApiError> {
        let prompt = self.prompt_ids(prompt, true)?;
        let mut usage = Usage { prompt_tokens: prompt.len(), ..Usage::default() };
        let request = Request { prompt, embed: Some(embed), ..Request::default() };
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
