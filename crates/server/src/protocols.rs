//! The protocols: one module for each, which reads its requests and writes its answers.

pub(crate) mod anthropic;
mod attachments;
pub(crate) mod freeform;
pub(crate) mod llama;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod ranking;
pub(crate) mod responses;
mod sealed;
mod unsupported;
mod warnings;

/// Where bodies are taken, in an order that the fuzzer's seeds count on.
const ROUTES: [&str; 24] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/completion",
    "/infill",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/embedding",
    "/v1/chat/completions/input_tokens",
    "/v1/conversations",
    "/v1/rerank",
    "/v1/score",
    "/v1/models/load",
    "/v1/models/unload",
];

/// One of the routes that take bodies. For fuzzing.
#[doc(hidden)]
pub fn body_route(at: u8) -> &'static str {
    ROUTES[usize::from(at) % ROUTES.len()]
}
