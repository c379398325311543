//! The request of `POST /api/chat`.

use crate::generate::flow::Reply;
use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::http::wire;
use crate::protocols::ollama::answer::{AnswerKind, OllamaAnswer};
use crate::protocols::ollama::duration::{self, KeepAlive};
use crate::protocols::ollama::format;
use crate::protocols::ollama::messages::{self, OllamaMessage};
use crate::protocols::ollama::options::{self, Options};
use crate::protocols::ollama::think::{self, Think};
use api::{ChatRequest, SamplingOptions, Service, Tool};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The next message of a conversation. Without messages it asks to load the model.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = OllamaChatBody)]
pub(crate) struct ChatBody {
    /// Any name: one model is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    messages: Option<Vec<OllamaMessage>>,
    /// Tools the model may call.
    tools: Option<Vec<Value>>,
    /// Answer in lines; so it is unless this is false.
    stream: Option<bool>,
    /// `"json"` or a JSON schema.
    format: Option<Value>,
    #[schema(value_type = Option<Options>)]
    options: Option<Value>,
    think: Option<Think>,
    /// Checked, but the model stays loaded.
    keep_alive: Option<KeepAlive>,
    /// Nothing is ever cut off.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    /// Nothing is ever pushed out.
    #[serde(rename = "shift")]
    _shift: Option<bool>,
    logprobs: Option<bool>,
    #[serde(default, deserialize_with = "wire::count")]
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<usize>,
}

/// Reads and prepares a request.
pub(crate) fn read(service: &Service, body: &Value) -> Result<Reply<OllamaAnswer>, HttpError> {
    let body: ChatBody = wire::read(body)?;
    let unload = duration::unloads(body.keep_alive.as_ref())?;
    let logprobs = options::logprobs(body.logprobs, body.top_logprobs)?;
    let mut answer =
        OllamaAnswer::new(&service.info().name, AnswerKind::Chat, logprobs.is_some(), None);
    let messages = messages::read(body.messages.unwrap_or_default())?;
    let sampling = options::sampling(body.options.as_ref())?;
    if messages.is_empty() {
        options::refuse(service, Vec::new(), sampling)?;
        return Ok(Reply::Ready(answer.idle(if unload { "unload" } else { "load" })));
    }
    think::check(body.think, service)?;
    let grammar = format::grammar(body.format.as_ref())?;
    let request = ChatRequest {
        messages,
        tools: tools(body.tools.unwrap_or_default())?,
        template_kwargs: think::kwargs(body.think),
        sampling: SamplingOptions { logprobs, ..sampling },
        grammar,
        ..ChatRequest::default()
    };
    let prompt =
        service.prepare_chat(&request).map_err(|error| HttpError::of(error, "messages"))?;
    Ok(answer.generation(prompt, body.stream).into())
}

fn tools(tools: Vec<Value>) -> Result<Vec<Tool>, HttpError> {
    for (at, tool) in tools.iter().enumerate() {
        let tool = ObjectReader::of(tool, &format!("tools[{at}]"))?;
        if let Some(function) = tool.fields("function")? {
            function.text("name")?;
        }
    }
    Ok(tools.into_iter().map(Tool::from).collect())
}
