//! The tokens of a sequence, as a choice of the next one sees them.

use crate::request::constraint::TokenSet;

/// The tokens of a sequence and what may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<'a> {
    /// Prompt and generated tokens.
    pub tokens: &'a [u32],
    /// Tokens generated in this step, which follow `tokens`.
    pub fresh: &'a [u32],
    /// Number of prompt tokens.
    pub prompt: usize,
    /// Ids that must not be chosen now.
    pub banned: &'a [u32],
    /// Ids that may be chosen now; `None` for all.
    pub allowed: Option<&'a TokenSet>,
    /// Whether the most likely id is chosen, whatever the temperature.
    pub greedy: bool,
}
