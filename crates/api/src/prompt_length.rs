//! What a service refuses because it is too long, and the ids of texts within its limit.

use crate::conversation::offers_tools;
use crate::error::{ApiError, text_error};
use crate::length::{LONG, TokenLimit};
use crate::message::{Message, Part, Role};
use crate::options::MAX_BIASES;
use crate::probed_template::ProbedTemplate;
use crate::request::ChatRequest;
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
        self.check_bytes(text.len())?;
        let within = |most| self.tokenizer().encode_within(text, options, most);
        self.token_limit().whole(before, within)
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
        let limit = self.token_limit();
        if least_tokens > limit.most() { Err(limit.exceeded(least_tokens)) } else { Ok(()) }
    }

    /// Refuses a conversation in which users, systems and tools say more than any tokens could
    /// hold, or that has more texts and tools than the context has tokens.
    pub(crate) fn check_length(
        &self,
        request: &ChatRequest,
        template: &ProbedTemplate,
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
        let tools = if shows_tools && offers_tools(request) { request.tools.len() } else { 0 };
        let texts = said.clone().filter(|Part::Text(text)| has_words(text)).count();
        self.check_least(texts + tools)?;
        self.check_bytes(said.map(|Part::Text(text)| text.trim().len()).sum())
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

/// Whether `text` has a letter or a digit, so that a prompt has at least a token of its own for
/// it: no token goes from the letters of one text over what stands between to those of the next.
pub fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}
