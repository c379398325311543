//! Outputs of a prompt itself: embeddings, one vector for a text, scores of a document for a query,
//! and logits.

use crate::error::{ApiError, text_error};
use crate::length::LONG;
use crate::request::{Prompt, RequestOptions};
use crate::service::Service;
use crate::usage_counter::Usage;
use engine::{Embed, Event, ModelTask, Request};
use text::{EncodeOptions, EncodedPair};

/// An embedding with its token counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// The vector: as wide as the model's hidden states, or as was asked for.
    pub vector: Vec<f32>,
    /// Tokens of the prompt, and those found in the cache.
    pub usage: Usage,
}

/// The logistic function of a score: from 0 to 1.
pub fn probability(score: f32) -> f32 {
    (1.0 / (1.0 + libm::exp(-f64::from(score)))) as f32
}

impl Service {
    /// The text that is put before texts to embed: that of `name`, or of the checkpoint's default.
    ///
    /// # Errors
    /// If the checkpoint has no prompt of this name.
    pub fn embedding_prompt(&self, name: Option<&str>) -> Result<&str, ApiError> {
        let sentence = &self.card.sentence;
        let Some(chosen) = name.or(sentence.default_prompt.as_deref()) else { return Ok("") };
        sentence.prompts.get(chosen).map(String::as_str).ok_or_else(|| {
            let known: Vec<_> = sentence.prompts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("prompt_name must be one of the model's prompts ({known})");
            ApiError::invalid("prompt_name", message)
        })
    }

    /// Checks the ids of a text to embed, of which the end is left out where they are more than
    /// `most`, if there is such a limit, or than the context holds.
    ///
    /// # Errors
    /// As [`embed`](Self::embed) before anything is computed.
    pub fn checked_text(
        &self,
        mut ids: Vec<u32>,
        embed: Embed,
        most: Option<usize>,
    ) -> Result<Vec<u32>, ApiError> {
        if let Some(most) = most {
            self.tokenizer().shorten(&mut ids, most.min(self.info().context_length));
        }
        let request = Request { prompt: ids, embed: Some(embed), ..Request::default() };
        self.engine.check(&request)?;
        Ok(request.prompt)
    }

    /// Computes the embedding of `prompt`; a text gets the model's special tokens. Dropping the
    /// future cancels the computation.
    ///
    /// # Errors
    /// If the prompt is longer than the context, the engine refuses the request, or it fails while
    /// it is computed.
    pub async fn embed(
        &self,
        prompt: &Prompt,
        embed: Embed,
        terms: &RequestOptions,
    ) -> Result<Embedding, ApiError> {
        let prompt = self.prompt_ids(prompt, true)?;
        self.vector(Request { prompt, embed: Some(embed), ..Request::default() }, terms).await
    }

    /// Whether the model has a head that scores a document for a query.
    pub fn ranks(&self) -> bool {
        self.info().task == ModelTask::Score { labels: 1 }
    }

    /// The ids of a query, for [`checked_pair`](Self::checked_pair).
    ///
    /// # Errors
    /// If the vocabulary cannot encode the text, or the context does not hold it.
    pub fn query_ids(&self, query: &str) -> Result<Vec<u32>, ApiError> {
        self.prompt_tokens(query, EncodeOptions::default(), 0)
    }

    /// The ids of a query with a document, of which the end is left out where they are more than
    /// `most`, if there is such a limit, or than the context holds.
    ///
    /// # Errors
    /// If the model ranks no documents, or the ids are too many.
    pub fn checked_pair(
        &self,
        query: &[u32],
        document: &str,
        most: Option<usize>,
    ) -> Result<EncodedPair, ApiError> {
        if most.is_none() && document.len() > LONG {
            self.prompt_tokens(document, EncodeOptions::default(), 0)?;
        }
        let most = most.map_or(usize::MAX, |most| most.min(self.info().context_length));
        let pair = self.tokenizer().encode_pair(query, document, most);
        let mut pair = pair.map_err(text_error)?;
        let known = self.info().token_types as u32;
        // A vocabulary may have types that its model has no use for.
        pair.types.iter_mut().filter(|kind| **kind >= known).for_each(|kind| *kind = 0);
        self.engine.check(&scored(pair.clone()))?;
        Ok(pair)
    }

    /// Computes the scores of a document for a query, one for each label. Dropping the future
    /// cancels the computation.
    ///
    /// # Errors
    /// If the engine refuses the request, or it fails while it is computed.
    pub async fn score(
        &self,
        pair: EncodedPair,
        terms: &RequestOptions,
    ) -> Result<Embedding, ApiError> {
        self.vector(scored(pair), terms).await
    }

    /// Computes the logits after each token of `prompt`, one row of the model's vocabulary for
    /// each; a text gets the model's special tokens. Row `i` is for the token that follows token
    /// `i`. Dropping the future cancels the computation.
    ///
    /// # Errors
    /// If the model generates no text, or the prompt is empty or does not fit into the context.
    pub async fn logits(
        &self,
        prompt: &Prompt,
        terms: &RequestOptions,
    ) -> Result<Vec<Vec<f32>>, ApiError> {
        let prompt = self.prompt_ids(prompt, true)?;
        let mut rows = Vec::with_capacity(prompt.len());
        let vocab = self.info().vocab_size;
        let request = Request { prompt, logits: true, ..Request::default() };
        let add = |event| {
            if let Event::Logits(logits) = event {
                rows.extend(logits.chunks_exact(vocab).map(<[f32]>::to_vec));
            }
        };
        self.outputs(request, terms, add).await?;
        Ok(rows)
    }

    async fn vector(
        &self,
        request: Request,
        terms: &RequestOptions,
    ) -> Result<Embedding, ApiError> {
        let mut usage = Usage { prompt_tokens: request.prompt.len(), ..Usage::default() };
        let mut vector = None;
        let take = |event| match event {
            Event::Admitted { lookup, .. } => usage.cached_tokens = lookup.found,
            Event::Embedding(found) => vector = Some(found),
            _ => {}
        };
        self.outputs(request, terms, take).await?;
        let vector = vector.ok_or_else(|| ApiError::Engine("no vector was made".into()))?;
        Ok(Embedding { vector, usage })
    }

    /// Computes a request without an answer, and calls `take` with its events but the last.
    async fn outputs(
        &self,
        request: Request,
        terms: &RequestOptions,
        mut take: impl FnMut(Event),
    ) -> Result<(), ApiError> {
        let (space, adapters) = (self.partition.space, self.adapters_of_request());
        let request = Request { space, adapters, ..request };
        let mut generation = self.submit(request, terms)?;
        loop {
            match generation.next().await {
                Some(Event::Finished(finished)) => {
                    return ApiError::of(&finished.outcome).map_or(Ok(()), Err);
                }
                Some(event) => take(event),
                None => return Err(ApiError::Stopped),
            }
        }
    }
}

/// The request of a score.
fn scored(pair: EncodedPair) -> Request {
    let embed = Some(Embed { scores: true, ..Embed::default() });
    Request { prompt: pair.ids, types: pair.types, embed, ..Request::default() }
}
