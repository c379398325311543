//! Texts that clients keep for the server, encoded and not secret: reasoning and summaries.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What the model reads before the summary of a conversation.
pub(crate) const SUMMARY: &str =
    "The conversation before this was replaced by a summary of it:\n\n";

/// What tells texts of this server from those of others, which cannot be read.
const OWN: &[u8] = b"gannet:";

/// Reasoning, or a summary, as `encrypted_content` carries it.
pub(crate) fn sealed(text: &str) -> String {
    STANDARD.encode([OWN, text.as_bytes()].concat())
}

/// The text that [`sealed`] was given.
pub(crate) fn unsealed(sealed: &str) -> Option<String> {
    let bytes = STANDARD.decode(sealed).ok()?;
    String::from_utf8(bytes.strip_prefix(OWN)?.to_vec()).ok()
}
