//! What a service refuses because it is too long, and the ids of texts within its limit.

use crate::error::{ApiError, text_error};
use crate::length::TokenLimit;
use crate::options::MAX_BIASES;
use crate::service::Service;
use text::EncodeOptions;

impl Service {
    /// The same model for requests whose tokens are counted, also where the context does not hold
    /// them, up to twice the context or 131,072, whichever is more.
    pub fn counting(&self) -> Self {
        let mut service = self.clone();
        service.counts = true;
        service
    }

    pub(crate) fn token_limit(&self) -> TokenLimit {
        TokenLimit { context: self.info().context_length, counts: self.counts }
    }

    /// The ids of `text`, which is a part of a prompt with `before` tokens before it.
    ///
    /// # Errors
    /// If the context does not hold them.
    pub fn prompt_tokens(
        &self,
        text: &str,
        options: EncodeOptions,
        before: usize,
    ) -> Result<Vec<u32>, ApiError> {
        let limit = self.token_limit();
        limit.check_bytes(text.len(), self.tokenizer())?;
        limit.whole(before, |most| self.tokenizer().encode_within(text, options, most))
    }

    /// The ids of `text`, which has `before` tokens before it; if the context does not hold them
    /// all, its first ones and the ones that end a text.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn first_tokens(
        &self,
        text: &str,
        options: EncodeOptions,
        before: usize,
    ) -> Result<Vec<u32>, ApiError> {
        let Some(most) = self.info().context_length.checked_sub(before) else {
            return Ok(Vec::new());
        };
        let encoded = self.tokenizer().encode_within(text, options, most);
        Ok(encoded.map_err(text_error)?.ids)
    }

    /// The ids of the tokens of `text` that get a bias in addition to `before` others, up to the
    /// first that is one too many.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn biased_tokens(&self, text: &str, before: usize) -> Result<Vec<u32>, ApiError> {
        let most = MAX_BIASES.saturating_sub(before) + 1;
        let encoded = self.tokenizer().encode_within(text, EncodeOptions::default(), most);
        let mut ids = encoded.map_err(text_error)?.ids;
        ids.truncate(most);
        Ok(ids)
    }

    /// Checks that the context holds a prompt of so many tokens.
    ///
    /// # Errors
    /// If the context does not hold so many tokens.
    pub fn check_least(&self, least_tokens: usize) -> Result<(), ApiError> {
        self.token_limit().check_least(least_tokens)
    }
}
