//! The engine's choice of tokens, for callers that lead sequences.

use crate::load::error::Error;
use crate::request::constraint::TokenSet;
use crate::request::fields::{Field, SamplingParams};
use crate::step::sampler::{History, Sampler, SamplerScratch};

/// Chooses tokens from logits as the engine does for requests: the same parameters, seed and logits
/// give the same tokens.
#[derive(Debug)]
pub struct TokenSampler {
    sampler: Sampler,
    scratch: SamplerScratch,
    vocab_size: usize,
}

impl TokenSampler {
    /// A sampler for a model of `vocab_size` tokens. Without a seed it takes one from the system.
    ///
    /// # Errors
    ///
    /// As [`SamplingParams::check`].
    pub fn new(params: SamplingParams, vocab_size: usize) -> Result<Self, (Field, String)> {
        params.check(vocab_size)?;
        let scratch = SamplerScratch::new(vocab_size);
        Ok(Self { sampler: Sampler::new(params), scratch, vocab_size })
    }

    /// Chooses the token after `tokens`, of which the first `prompt` were not generated, from the
    /// logits `[vocab_size]` after the last of them; among `allowed` ones, if they are given.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`] or [`Error::NothingLeft`].
    ///
    /// # Panics
    ///
    /// If the number of logits is not the size of the vocabulary, or there are fewer tokens than
    /// those of the prompt.
    pub fn choose(
        &mut self,
        tokens: &[u32],
        prompt: usize,
        logits: &[f32],
        allowed: Option<&TokenSet>,
    ) -> Result<u32, Error> {
        assert_eq!(logits.len(), self.vocab_size, "a logit for each token of the vocabulary");
        assert!(prompt <= tokens.len(), "the prompt is part of the tokens");
        let history = History { tokens, fresh: &[], prompt, banned: &[], allowed, greedy: false };
        let chosen = self.sampler.sample(logits, history, &mut self.scratch, None)?;
        Ok(chosen.0)
    }
}
