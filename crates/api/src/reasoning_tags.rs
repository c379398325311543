//! The tags of reasoning, of families that have none of their own.

/// The tag that opens reasoning.
pub(crate) const THINK: &str = "<think>";
/// The tag that closes it.
pub(crate) const CLOSE: &str = "</think>";
/// The text that ends reasoning on behalf of the model, where the family has none of its own.
pub(crate) const CLOSING: &str = "\n</think>\n\n";
