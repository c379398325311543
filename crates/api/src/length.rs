//! Prompts that are too long: what is refused before it is rendered or tokenized, and where
//! tokenization stops.
//!
//! Invariant: a prompt that the context holds is tokenized whole, and what is tokenized of another
//! is in proportion to the context.

use crate::error::{ApiError, text_error};
use engine::Field;
use text::EncodedText;

/// Most tokens of a text that are counted, where the context is not longer.
const MAX_COUNTED_TOKENS: usize = 1 << 17;
/// Bytes of texts above which the least number of their tokens is looked at first.
pub(crate) const LONG: usize = 128 << 10;

/// Most tokens of a prompt that are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenLimit {
    pub context: usize,
    /// Whether tokens are counted, also where the context does not hold them.
    pub counts: bool,
}

impl TokenLimit {
    /// Most tokens that are of use.
    pub fn most(&self) -> usize {
        if self.counts { MAX_COUNTED_TOKENS.max(2 * self.context) } else { self.context }
    }

    /// The ids of a part of a prompt that has `before` tokens before it.
    ///
    /// # Errors
    /// If they are more than the context holds, or cannot be encoded.
    pub fn whole(
        &self,
        before: usize,
        encode_within: impl Fn(usize) -> text::Result<EncodedText>,
    ) -> Result<Vec<u32>, ApiError> {
        let Some(most) = self.most().checked_sub(before) else {
            return Err(self.exceeded(before));
        };
        let encoded = encode_within(most);
        let EncodedText { ids, is_cut } = encoded.map_err(text_error)?;
        if is_cut { Err(self.exceeded(before + ids.len())) } else { Ok(ids) }
    }

    /// The error of a prompt of at least so many tokens.
    pub fn exceeded(&self, least_tokens: usize) -> ApiError {
        if !self.counts {
            return ApiError::FarBeyondContext { least_tokens, context_length: self.context };
        }
        let message = format!(
            "expected a text of at most {} tokens, found at least {least_tokens}",
            self.most()
        );
        ApiError::Invalid { field: Field::Prompt, message }
    }
}
