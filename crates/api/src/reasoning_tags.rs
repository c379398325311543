//! The tags of reasoning, and the text that ends it on behalf of the model.

use formats::ChatRules;
use text::ToolFormat;

/// The tag that opens reasoning, in families that have none of their own.
pub(crate) const THINK: &str = "<think>";
/// The tag that closes it.
pub(crate) const CLOSE: &str = "</think>";
/// The text that ends reasoning on behalf of the model, where the family has none of its own.
pub(crate) const CLOSING: &str = "\n</think>\n\n";

/// The tags of the reasoning of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReasoningTags {
    /// Opens reasoning.
    pub open: &'static str,
    /// Closes it.
    pub close: &'static str,
    /// The text that ends it on behalf of the model.
    pub closing: &'static str,
}

impl Default for ReasoningTags {
    fn default() -> Self {
        Self { open: THINK, close: CLOSE, closing: CLOSING }
    }
}

impl ReasoningTags {
    /// The tags of answers in `format`, of a family with `rules`.
    pub fn of(format: Option<&'static ToolFormat>, rules: Option<&ChatRules>) -> Self {
        let [open, close] = format.map_or([THINK, CLOSE], ToolFormat::reasoning_tags);
        let closing = match rules {
            Some(rules) => rules.closing,
            None if close == CLOSE => CLOSING,
            None => close,
        };
        Self { open, close, closing }
    }
}
