//! The answer of `POST /v1/chat/completions`, whole and as chunks.

use crate::generate::answer::{Answer, AnswerCall, Collected};
use crate::generate::logprobs::{self, TokenLogprob};
use crate::http::error::HttpError;
use crate::http::sse::Frame;
use crate::protocols::openai::answer::{self, Heading};
use api::{CallEvent, Delta, TextEvent, TokenText, Usage};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

const CHUNK: &str = "chat.completion.chunk";

/// Writes chat completions.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    heading: Heading,
    style: ChatStyle,
    /// Choices whose first chunk, with the role, was sent.
    opened: Vec<bool>,
}

/// What the client wants to hear.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChatStyle {
    pub logprobs: bool,
    /// A last chunk with the usage.
    pub stream_usage: bool,
    /// Calls as `function_call`.
    pub functions: bool,
}

impl ChatAnswer {
    /// For an answer of so many choices.
    pub fn new(heading: Heading, choices: usize, style: ChatStyle) -> Self {
        Self { heading, style, opened: vec![false; choices] }
    }

    fn chunk(
        &self,
        index: usize,
        delta: ChatDelta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<&'static str>,
    ) -> Frame {
        let choice = ChunkChoice { index, delta, logprobs, finish_reason };
        self.heading.chunk(CHUNK, vec![choice], self.style.stream_usage)
    }

    fn text(&self, index: usize, delta: Delta, reasoning: bool) -> Frame {
        let logprobs = self.logprobs(&delta.tokens);
        let (content, thought) = match reasoning {
            true => (None, Some(delta.text)),
            false => (Some(delta.text), None),
        };
        let delta = ChatDelta { content, reasoning_content: thought, ..ChatDelta::default() };
        self.chunk(index, delta, logprobs, None)
    }

    /// What a chunk says of a call. A broken one gets no further word: its choice does not end in
    /// `tool_calls`, and so it is not executed.
    fn call(&self, choice: usize, event: CallEvent) -> Option<Frame> {
        let delta = match event {
            CallEvent::Start { index, id, name } => {
                let function = FunctionDelta { name: Some(name), ..FunctionDelta::default() };
                ToolCallDelta { index, id: Some(id), kind: Some("function"), function }
            }
            CallEvent::Arguments { index, delta } => {
                let function = FunctionDelta { name: None, arguments: delta };
                ToolCallDelta { index, function, ..ToolCallDelta::default() }
            }
            CallEvent::End { .. } | CallEvent::Broken { .. } => return None,
        };
        let delta = match self.style.functions {
            true => ChatDelta { function_call: Some(delta.function), ..ChatDelta::default() },
            false => ChatDelta { tool_calls: vec![delta], ..ChatDelta::default() },
        };
        Some(self.chunk(choice, delta, None, None))
    }

    fn logprobs(&self, tokens: &[TokenText]) -> Option<ChatLogprobs> {
        let told = || ChatLogprobs { content: logprobs::chat(tokens), refusal: None };
        self.style.logprobs.then(told)
    }

    fn reason(&self, reason: &'static str) -> &'static str {
        match reason {
            "tool_calls" if self.style.functions => "function_call",
            reason => reason,
        }
    }

    fn message(&self, choice: Collected) -> AssistantMessage {
        let Collected { content, reasoning, calls, .. } = choice;
        let silent = content.is_empty() && !calls.is_empty();
        let mut calls = calls.into_iter().map(|AnswerCall { id, name, arguments, .. }| {
            let function = CalledFunction { name, arguments };
            AnswerToolCall { id, kind: "function", function }
        });
        let (tool_calls, function_call) = match self.style.functions {
            true => (Vec::new(), calls.next().map(|call| call.function)),
            false => (calls.collect(), None),
        };
        AssistantMessage {
            role: "assistant",
            content: (!silent).then_some(content),
            refusal: None,
            reasoning_content: Some(reasoning).filter(|text| !text.is_empty()),
            tool_calls,
            function_call,
        }
    }
}

impl Answer for ChatAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        let chunk = match event {
            TextEvent::Reasoning(delta) => Some(self.text(index, delta, true)),
            TextEvent::Content(delta) => Some(self.text(index, delta, false)),
            TextEvent::Call(event) => self.call(index, event),
            TextEvent::Done(done) => {
                let reason = self.reason(done.finish.reason());
                Some(self.chunk(index, ChatDelta::default(), None, Some(reason)))
            }
            TextEvent::Admitted { .. }
            | TextEvent::Prefill { .. }
            | TextEvent::Prompt { .. }
            | TextEvent::Failed(_) => None,
        };
        let Some(chunk) = chunk else { return Vec::new() };
        if std::mem::replace(&mut self.opened[index], true) {
            return vec![chunk];
        }
        let (role, content) = (Some("assistant"), Some(String::new()));
        let role = ChatDelta { role, content, ..ChatDelta::default() };
        vec![self.chunk(index, role, None, None), chunk]
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let last = || self.heading.json(CHUNK, Vec::<ChunkChoice>::new(), Some(Some(usage)));
        answer::close(self.style.stream_usage.then(last))
    }

    fn broken(&mut self, error: &HttpError) -> Vec<Frame> {
        answer::broken(error)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let choice = |(index, choice): (usize, Collected)| ChatChoice {
            index,
            logprobs: self.logprobs(&choice.tokens),
            finish_reason: choice.finish_reason().map(|reason| self.reason(reason)),
            message: self.message(choice),
        };
        let choices = choices.into_iter().enumerate().map(choice).collect();
        self.heading.json("chat.completion", choices, Some(Some(usage)))
    }
}

/// One of the answers to a conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    index: usize,
    message: AssistantMessage,
    logprobs: Option<ChatLogprobs>,
    /// `stop`, `length`, `tool_calls`, or `function_call` where the request spoke of functions.
    finish_reason: Option<&'static str>,
}

/// What the model says.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatAssistantMessage)]
struct AssistantMessage {
    role: &'static str,
    content: Option<String>,
    refusal: Option<String>,
    /// What it thought.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    tool_calls: Vec<AnswerToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<CalledFunction>,
}

/// A call of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatToolCall)]
struct AnswerToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

/// What is called.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatCalledFunction)]
struct CalledFunction {
    name: String,
    /// The JSON text of an object.
    arguments: String,
}

/// The log probabilities of a choice's tokens.
#[derive(Debug, Serialize, ToSchema)]
struct ChatLogprobs {
    content: Vec<TokenLogprob>,
    refusal: Option<String>,
}

/// A step of one of the answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChunkChoice {
    index: usize,
    delta: ChatDelta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

/// What a step adds.
#[derive(Debug, Default, Serialize, ToSchema)]
struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    tool_calls: Vec<ToolCallDelta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionDelta>,
}

/// A step of a call: its names, then pieces of its arguments.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatToolCallDelta)]
struct ToolCallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta,
}

/// A step of what is called.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatFunctionDelta)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}
