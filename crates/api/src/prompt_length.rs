//! What a service refuses because it is too long, and the ids of texts within its limit.

use crate::error::{ApiError, text_error};
use crate::length::{LONG, TokenLimit};
use crate::message::{Message, Part, Role};
use crate::probed_template::ProbedTemplate;
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

    /// Refuses a conversation in which users, systems and tools say more than any tokens could
    /// hold.
    pub(crate) fn check_length(
        &self,
        messages: &[Message],
        template: &ProbedTemplate,
    ) -> Result<(), ApiError> {
        // Their texts are all written, by the template or as text of others' messages, perhaps
        // without the white space around them. Of answers a template may leave parts out.
        let writes = |message: &&Message| match message.role {
            Role::User | Role::System => true,
            Role::Tool => template.rules.calls || template.calls_as_text,
            Role::Assistant | Role::Other(_) => false,
        };
        let said = messages.iter().filter(writes);
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
