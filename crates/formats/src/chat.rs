//! What is known of the chats of a family of models that its checkpoints do not say.

/// The rules of one family's chats.
#[derive(Debug, PartialEq, Eq)]
pub struct ChatRules {
    /// The source of the chat template for checkpoints that have none, in Jinja.
    pub template: &'static str,
    /// The text that ends reasoning on behalf of the model.
    pub closing: &'static str,
    /// Tokens of context from which the effort `max` differs from `high`.
    pub max_effort_context: usize,
}
