//! Prompts that are too long: what is refused before it is rendered or tokenized, and where
//! tokenization stops.
//!
//! Invariant: a prompt that the context holds is tokenized whole, and what is tokenized of another
//! is in proportion to the context.

use crate::error::{ApiError, text_error};
use crate::message::{Message, Part, Role};
use crate::probed_template::ProbedTemplate;
use crate::request::ChatRequest;
use engine::Field;
use text::{EncodedText, Tokenizer};

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

    /// Refuses a prompt that has at least so many tokens if the context does not hold them.
    ///
    /// # Errors
    /// If the context does not hold them.
    pub fn check_least(&self, least_tokens: usize) -> Result<(), ApiError> {
        if least_tokens > self.most() { Err(self.exceeded(least_tokens)) } else { Ok(()) }
    }

    /// Refuses a prompt of so many bytes if no tokens could be few enough.
    ///
    /// # Errors
    /// If the context cannot hold so many.
    pub fn check_bytes(&self, bytes: usize, tokenizer: &Tokenizer) -> Result<(), ApiError> {
        if bytes > LONG { self.check_least(tokenizer.least_tokens(bytes)) } else { Ok(()) }
    }

    /// Refuses a conversation in which users, systems and tools say more than any tokens could
    /// hold, or that has more texts and tools than the context has tokens.
    ///
    /// # Errors
    /// If the context cannot hold the conversation.
    pub fn check_chat(
        &self,
        request: &ChatRequest,
        template: &ProbedTemplate,
        tokenizer: &Tokenizer,
    ) -> Result<(), ApiError> {
        // Their texts are all written, by the template or as text of others' messages, perhaps
        // without the white space around them. Of answers a template may leave parts out.
        let writes = |message: &&Message| match message.role {
            Role::User | Role::System => true,
            Role::Tool => template.rules.calls || template.calls_as_text,
            Role::Assistant | Role::Other(_) => false,
        };
        let said = request.messages.iter().filter(writes).flat_map(|message| &message.content);
        let shows_tools = template.rules.tools || template.describes().is_some();
        let tools = if shows_tools && request.offers_tools() { request.tools.len() } else { 0 };
        let texts = said.clone().filter(|Part::Text(text)| has_words(text)).count();
        self.check_least(texts + tools)?;
        self.check_bytes(said.map(|Part::Text(text)| text.trim().len()).sum(), tokenizer)
    }

    /// The error of a prompt of at least so many tokens.
    fn exceeded(&self, least_tokens: usize) -> ApiError {
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

/// Whether `text` has a letter or a digit, so that a prompt has at least a token of its own for
/// it: no token goes from the letters of one text over what stands between to those of the next.
pub fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}
