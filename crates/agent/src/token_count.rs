//! Tokens of messages that are not computed yet, as they are counted by their bytes.

use crate::message_json::message_json;
use api::Message;

/// Bytes that a token has at least.
pub(crate) const BYTES_PER_TOKEN: usize = 3;

/// Tokens of messages, as they are counted before they are computed.
pub(crate) fn tokens(messages: &[Message]) -> usize {
    let bytes = |message: &Message| message_json(message).to_string().len();
    messages.iter().map(bytes).sum::<usize>().div_ceil(BYTES_PER_TOKEN)
}
