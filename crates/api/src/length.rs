//! Prompts that are too long: what is refused before it is rendered or tokenized, and where
//! tokenization stops.
//!
//! Invariant: a prompt that the context holds is tokenized whole, and what is tokenized of another
//! is in proportion to the context.

use crate::conversation::text_error;
use crate::error::ApiError;
use crate::message::{Message, Part, Role};
use crate::service::Service;
use engine::Field;
use text::{EncodeOptions, EncodedText};

/// Most tokens of a text that are counted.
pub const MAX_COUNTED_TOKENS: usize = 1 << 20;
/// Bytes of texts above which the least number of their tokens is looked at first.
pub(crate) const LONG: usize = 128 << 10;

/// Most tokens of a prompt that are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenLimit {
    context: usize,
    /// Whether tokens are counted, also where the context does not hold them.
    counts: bool,
}

impl TokenLimit {
    /// Most tokens that are of use.
    pub fn most(&self) -> usize {
        if self.counts { MAX_COUNTED_TOKENS } else { self.context }
    }

    /// The ids of a part of a prompt, or that they are too many.
    pub fn whole(&self, encoded: text::Result<EncodedText>) -> Result<Vec<u32>, ApiError> {
        let EncodedText { ids, is_cut } = encoded.map_err(text_error)?;
        if is_cut { Err(self.exceeded(ids.len())) } else { Ok(ids) }
    }

    /// The error of a prompt of at least so many tokens.
    fn exceeded(&self, least_tokens: usize) -> ApiError {
        if !self.counts {
            return ApiError::FarBeyondContext { least_tokens, context_length: self.context };
        }
        let message = format!(
            "expected a text of at most {MAX_COUNTED_TOKENS} tokens, found at least {least_tokens}"
        );
        ApiError::Invalid { field: Field::Prompt, message }
    }
}

impl Service {
    /// The same model for requests whose tokens are counted, also where the context does not hold
    /// them, up to [`MAX_COUNTED_TOKENS`].
    pub fn counting(&self) -> Self {
        let mut service = self.clone();
        service.counts = true;
        service
    }

    pub(crate) fn token_limit(&self) -> TokenLimit {
        TokenLimit { context: self.info().context_length, counts: self.counts }
    }

    /// The ids of `text`, which is a part of a prompt.
    ///
    /// # Errors
    /// If the context does not hold them.
    pub fn prompt_tokens(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, ApiError> {
        let limit = self.token_limit();
        self.check_bytes(text.len())?;
        limit.whole(self.tokenizer().encode_within(text, options, limit.most()))
    }

    /// The ids of `text`; if the context does not hold them all, its first ones and the ones that
    /// end a text.
    pub fn first_tokens(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, ApiError> {
        let encoded = self.tokenizer().encode_within(text, options, self.info().context_length);
        Ok(encoded.map_err(text_error)?.ids)
    }

    /// Refuses a conversation in which the user says more than any tokens could hold.
    pub(crate) fn check_length(&self, messages: &[Message]) -> Result<(), ApiError> {
        // Every template writes what the user says, perhaps without the white space around it.
        let said = messages.iter().filter(|message| message.role == Role::User);
        let bytes = said.flat_map(|message| &message.content);
        self.check_bytes(bytes.map(|Part::Text(text)| text.trim().len()).sum())
    }

    /// Refuses a prompt of so many bytes if no tokens could be few enough.
    fn check_bytes(&self, bytes: usize) -> Result<(), ApiError> {
        let limit = self.token_limit();
        match bytes > LONG {
            true if self.tokenizer().least_tokens(bytes) > limit.most() => {
                Err(limit.exceeded(self.tokenizer().least_tokens(bytes)))
            }
            _ => Ok(()),
        }
    }
}
