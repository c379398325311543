//! The answer of `POST /v1/chat/completions`, whole and as chunks.

use crate::generate::answer::{Answer, AnswerCall, Collected};
use crate::generate::logprobs::{self, TokenLogprob};
use crate::generate::options::Telemetry;
use crate::generate::timings::{ChoiceProgress, PromptProgress, Timings};
use crate::http::error::HttpError;
use crate::http::sse::Frame;
use crate::protocols::freeform;
use crate::protocols::openai::answer::{self, Extras, Heading};
use crate::protocols::openai::custom_tools::{CustomTools, OpenCall};
use crate::protocols::warnings::Warnings;
use api::{CallEvent, Delta, Done, TextEvent, TokenText, Usage};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

const CHUNK: &str = "chat.completion.chunk";

/// Writes chat completions.
#[derive(Debug)]
pub(crate) struct ChatAnswer {
    heading: Heading,
    style: ChatStyle,
    choices: Vec<StreamedChoice>,
    custom: CustomTools,
    /// What the request asked for and does not get.
    warnings: Warnings,
}

/// Where one choice of a stream stands.
#[derive(Clone, Debug)]
struct StreamedChoice {
    /// Its first chunk, with the role, was sent.
    opened: bool,
    progress: ChoiceProgress,
    /// The call of a custom tool that has begun and not ended.
    open: Option<OpenCall>,
    done: Option<Done>,
}

/// What the client asks to receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChatStyle {
    pub logprobs: bool,
    /// A last chunk with the usage.
    pub stream_usage: bool,
    /// What the chunks report of the computation.
    pub telemetry: Telemetry,
    /// Calls as `function_call`.
    pub functions: bool,
    /// No reasoning.
    pub hides_reasoning: bool,
}

impl ChatAnswer {
    /// For an answer of so many choices, which may call these custom tools.
    pub fn new(
        heading: Heading,
        choices: usize,
        style: ChatStyle,
        custom: CustomTools,
        warnings: Warnings,
    ) -> Self {
        let progress = ChoiceProgress::default();
        let choice = StreamedChoice { opened: false, progress, open: None, done: None };
        Self { heading, style, choices: vec![choice; choices], custom, warnings }
    }

    fn chunk(
        &self,
        index: usize,
        delta: ChatDelta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<&'static str>,
    ) -> Frame {
        let timings = self.style.telemetry.timings.then(|| self.choices[index].progress.timings());
        let choice = ChunkChoice { index, delta, logprobs, finish_reason };
        self.frame(choice, Extras { timings, ..Extras::default() })
    }

    /// A chunk. A stream that ends with the usage has the member in all chunks.
    fn frame(&self, choice: ChunkChoice, extras: Extras<'_>) -> Frame {
        let StreamedChoice { progress, done, .. } = &self.choices[choice.index];
        let so_far = self.style.telemetry.usage.then(|| progress.usage_by(done.as_ref()));
        let usage = self.style.stream_usage.then_some(so_far.as_ref());
        let extras = Extras { usage, ..extras };
        Frame::Data(self.heading.json(CHUNK, vec![choice], extras))
    }

    /// The first chunk of a choice.
    fn opening(&self, index: usize) -> ChunkChoice {
        let (role, content) = (Some("assistant"), Some(String::new()));
        let delta = ChatDelta { role, content, ..ChatDelta::default() };
        ChunkChoice { index, delta, logprobs: None, finish_reason: None }
    }

    /// A chunk of a choice, after the first one if that was not sent.
    fn opened(&mut self, index: usize, chunk: Frame) -> Vec<Frame> {
        if std::mem::replace(&mut self.choices[index].opened, true) {
            return vec![chunk];
        }
        let extras = Extras { warnings: self.warnings(index), ..Extras::default() };
        vec![self.frame(self.opening(index), extras), chunk]
    }

    /// The warnings of a choice's first chunk.
    fn warnings(&self, index: usize) -> Option<&Warnings> {
        (index == 0).then_some(&self.warnings)
    }

    /// A chunk about the prompt; the first one has the role.
    fn progress(&mut self, index: usize, progress: PromptProgress) -> Frame {
        let (choice, warnings) = match std::mem::replace(&mut self.choices[index].opened, true) {
            false => (self.opening(index), self.warnings(index)),
            true => (ChunkChoice { index, ..ChunkChoice::default() }, None),
        };
        let timings = self.style.telemetry.timings.then(|| self.choices[index].progress.timings());
        let progress = Some(progress);
        self.frame(choice, Extras { timings, progress, warnings, ..Extras::default() })
    }

    /// The last chunk of a choice, with the times where no chunk with the usage follows.
    fn end(&mut self, index: usize, done: Done) -> Frame {
        let finish_reason = Some(self.reason(done.finish.reason()));
        let choice = ChunkChoice { index, finish_reason, ..ChunkChoice::default() };
        let told = !self.style.stream_usage || self.style.telemetry.timings;
        let timings = told.then(|| Timings::of(&done));
        self.choices[index].done = Some(done);
        self.frame(choice, Extras { timings, ..Extras::default() })
    }

    fn text(&mut self, index: usize, delta: Delta, reasoning: bool) -> Frame {
        let logprobs = self.logprobs(&delta.tokens);
        let progress = &mut self.choices[index].progress;
        let (content, thought) = match reasoning {
            true => {
                progress.add_reasoning(&delta);
                (None, (!self.style.hides_reasoning).then_some(delta.text))
            }
            false => {
                progress.add(&delta);
                (Some(delta.text), None)
            }
        };
        let delta = ChatDelta { content, reasoning_content: thought, ..ChatDelta::default() };
        self.chunk(index, delta, logprobs, None)
    }

    /// What a chunk says of a call. A broken one gets no further word: its choice does not end in
    /// `tool_calls`, and so it is not executed.
    fn call(&mut self, choice: usize, event: CallEvent) -> Option<Frame> {
        let delta = match event {
            CallEvent::Start { index, id, name } if self.custom.has(&name) => {
                self.choices[choice].open = Some(OpenCall::new(index));
                let custom = Some(CustomDelta { name: Some(name), ..CustomDelta::default() });
                let (id, kind) = (Some(id), Some("custom"));
                ToolCallDelta { index, id, kind, custom, ..ToolCallDelta::default() }
            }
            CallEvent::Start { index, id, name } => {
                let function = Some(FunctionDelta { name: Some(name), ..FunctionDelta::default() });
                let (id, kind) = (Some(id), Some("function"));
                ToolCallDelta { index, id, kind, function, ..ToolCallDelta::default() }
            }
            CallEvent::Arguments { index, delta } => match &mut self.choices[choice].open {
                Some(open) => ToolCallDelta::input(index, open.push(&delta))?,
                None => {
                    let function = Some(FunctionDelta { name: None, arguments: delta });
                    ToolCallDelta { index, function, ..ToolCallDelta::default() }
                }
            },
            CallEvent::End { .. } => return self.rest_of_call(choice),
            CallEvent::Broken { .. } => {
                self.choices[choice].open = None;
                return None;
            }
        };
        Some(self.call_chunk(choice, delta))
    }

    /// What of the text of a custom tool's call was held back until its end.
    fn rest_of_call(&mut self, choice: usize) -> Option<Frame> {
        let open = self.choices[choice].open.take()?;
        let delta = ToolCallDelta::input(open.index, open.finish())?;
        Some(self.call_chunk(choice, delta))
    }

    fn call_chunk(&self, choice: usize, delta: ToolCallDelta) -> Frame {
        let delta = match self.style.functions {
            true => ChatDelta { function_call: delta.function, ..ChatDelta::default() },
            false => ChatDelta { tool_calls: vec![delta], ..ChatDelta::default() },
        };
        self.chunk(choice, delta, None, None)
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
            if self.custom.has(&name) {
                let custom = Some(CalledCustom { name, input: freeform::text(&arguments) });
                return AnswerToolCall { id, kind: "custom", function: None, custom };
            }
            let function = Some(CalledFunction { name, arguments });
            AnswerToolCall { id, kind: "function", function, custom: None }
        });
        let (tool_calls, function_call) = match self.style.functions {
            true => (Vec::new(), calls.next().and_then(|call| call.function)),
            false => (calls.collect(), None),
        };
        AssistantMessage {
            role: "assistant",
            content: (!silent).then_some(content),
            refusal: None,
            reasoning_content: Some(reasoning)
                .filter(|text| !text.is_empty() && !self.style.hides_reasoning),
            tool_calls,
            function_call,
        }
    }
}

impl Answer for ChatAnswer {
    fn frames(&mut self, index: usize, event: TextEvent) -> Vec<Frame> {
        let chunk = match event {
            // Where reasoning is hidden, a chunk of it tells nothing but log probabilities.
            TextEvent::Reasoning(delta) => {
                let chunk = self.text(index, delta, true);
                (!self.style.hides_reasoning || self.style.logprobs).then_some(chunk)
            }
            TextEvent::Content(delta) => Some(self.text(index, delta, false)),
            TextEvent::Call(event) => self.call(index, event),
            TextEvent::Done(done) => {
                let rest = self.rest_of_call(index);
                let end = self.end(index, done);
                return rest.into_iter().chain(self.opened(index, end)).collect();
            }
            TextEvent::Prefill { cached, done, total } => {
                let progress = self.choices[index].progress.prefill(cached, done, total);
                let told = self.style.telemetry.progress;
                return told.then(|| self.progress(index, progress)).into_iter().collect();
            }
            TextEvent::Admitted { .. } | TextEvent::Prompt { .. } | TextEvent::Failed(_) => None,
        };
        chunk.map(|chunk| self.opened(index, chunk)).unwrap_or_default()
    }

    fn close(&mut self, usage: &Usage) -> Vec<Frame> {
        let ended = self.choices.iter().enumerate().filter_map(|(at, choice)| {
            let done = choice.done.as_ref()?;
            Some((at == 0, done))
        });
        let timings = Some(Timings::of_all(ended));
        let extras = Extras { usage: Some(Some(usage)), timings, ..Extras::default() };
        let last = || self.heading.json(CHUNK, Vec::<ChunkChoice>::new(), extras);
        answer::close(self.style.stream_usage.then(last))
    }

    fn refused(error: &HttpError) -> Vec<Frame> {
        answer::refused(error)
    }

    fn whole(&mut self, choices: Vec<Collected>, usage: &Usage) -> Value {
        let ended = choices.iter().enumerate();
        let ended = ended.filter_map(|(at, choice)| Some((at == 0, choice.done.as_ref()?)));
        let timings = Some(Timings::of_all(ended));
        let choice = |(index, choice): (usize, Collected)| ChatChoice {
            index,
            logprobs: self.logprobs(&choice.tokens),
            finish_reason: choice.finish_reason().map(|reason| self.reason(reason)),
            message: self.message(choice),
        };
        let choices = choices.into_iter().enumerate().map(choice).collect();
        let warnings = Some(&self.warnings);
        let usage = Some(Some(usage));
        let extras = Extras { usage, timings, warnings, ..Extras::default() };
        self.heading.json("chat.completion", choices, extras)
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
    /// `function` or `custom`.
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<CalledFunction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<CalledCustom>,
}

/// The custom tool that is called, and its text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatCalledCustom)]
struct CalledCustom {
    name: String,
    input: String,
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
#[derive(Debug, Default, Serialize, ToSchema)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionDelta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<CustomDelta>,
}

impl ToolCallDelta {
    /// A piece of a custom tool's text, unless it is empty.
    fn input(index: usize, input: String) -> Option<Self> {
        let custom = CustomDelta { name: None, input };
        let is_some = !custom.input.is_empty();
        is_some.then(|| Self { index, custom: Some(custom), ..Self::default() })
    }
}

/// A step of the text of a custom tool.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatCustomDelta)]
struct CustomDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    input: String,
}

/// A step of what is called.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ChatFunctionDelta)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}
