//! The prompt of a conversation, from the server's route for it, so that a request means the same
//! as over HTTP.

use crate::error::CapiError;
use calls::{LocalServer, NextChunk};
use serde_json::Value;

/// The route, and the member of its response.
const ROUTE: &str = "/apply-template";
const PROMPT: &str = "prompt";

/// The prompt that the chat template makes of the JSON of a request.
pub(crate) fn render(server: &LocalServer, request: &str) -> Result<String, CapiError> {
    let call = server.call("POST", ROUTE, request.as_bytes().to_vec())?;
    let NextChunk::Chunk(body) = call.next(None) else { return Err(CapiError::Stopped) };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (call.status(), body.get(PROMPT)) {
        (Some(200), Some(Value::String(prompt))) => Ok(prompt.clone()),
        _ => {
            let message = body.pointer("/error/message").and_then(Value::as_str);
            Err(CapiError::Request(message.unwrap_or("no prompt was rendered").to_owned()))
        }
    }
}
