//! A model whose answers follow a plan, whatever its weights are.
//!
//! The schemas of the plan's tools admit the planned arguments alone, and each answer is made to
//! call the tool of its step; its tokens are sampled, parsed and kept as ever. The schemas are the
//! same in every request, so that prompts continue each other.

use agent::{AgentModel, AnswerStart, LocalModel};
use api::{
    AnswerOptions, ApiError, ChatRequest, Message, SamplingOptions, Service, SettledAnswer,
    TextEvent, Tool, ToolChoice, Transcript, TranscriptMark,
};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use text::{EncodeOptions, GrammarSource};

/// What a summary of the conversation says.
pub const SUMMARY: &str =
    r#"{"goal":"g","constraints":[],"decisions":[],"state":"s","next_step":"n"}"#;
/// Outweighs every logit.
const PREFERENCE: f32 = 100.0;

/// An answer of a plan.
#[derive(Clone, Debug)]
pub enum PlannedAnswer {
    /// A call of a tool with arguments. Of several calls of a tool, the first arguments begin with
    /// different digits, which are tokens of their own.
    Call(String, Value),
    /// A text.
    Say(String),
}

/// The answers to come, which are shared with the model that makes them.
#[derive(Clone, Debug, Default)]
pub struct PlannedAnswers {
    /// The answers.
    pub to_come: Rc<RefCell<VecDeque<PlannedAnswer>>>,
    /// When each answer was asked for.
    pub asked: Rc<RefCell<Vec<Instant>>>,
}

/// `tools` with schemas that admit the calls of `plan` alone, where it has some.
pub fn forced_tools(mut tools: Vec<Tool>, plan: &[PlannedAnswer]) -> Vec<Tool> {
    for tool in &mut tools {
        let calls = plan.iter().filter_map(|answer| match answer {
            PlannedAnswer::Call(name, arguments) if *name == tool.name => Some(schema(arguments)),
            _ => None,
        });
        let mut calls: Vec<Value> = calls.collect();
        match calls.len() {
            0 => {}
            1 => tool.parameters = calls.remove(0),
            _ => tool.parameters = json!({"anyOf": calls}),
        }
    }
    tools
}

/// A schema that admits these arguments alone.
fn schema(arguments: &Value) -> Value {
    let members = arguments.as_object().expect("arguments are an object");
    let names: Vec<&String> = members.keys().collect();
    let only = |(name, value): (&String, &Value)| (name.clone(), json!({"const": value}));
    let properties: Map<String, Value> = members.iter().map(only).collect();
    json!({
        "type": "object", "properties": properties, "required": names,
        "additionalProperties": false,
    })
}

/// A model of this process whose answers are planned.
#[derive(Debug)]
pub struct ForcedModel {
    inner: LocalModel,
    service: Service,
    answers: PlannedAnswers,
}

impl ForcedModel {
    /// A conversation whose next answers are `answers`, of which each is taken away once made.
    pub fn new(service: Service, transcript: Transcript, answers: PlannedAnswers) -> Self {
        let inner = LocalModel::new(service.clone(), transcript).expect("a timer");
        Self { inner, service, answers }
    }

    /// The request of a conversation with these messages and forced tools. Reasoning has at most
    /// so many tokens.
    pub fn request(
        messages: Vec<Message>,
        tools: Vec<Tool>,
        reasoning_budget: usize,
    ) -> ChatRequest {
        ChatRequest {
            messages,
            tools,
            parallel_calls: false,
            reasoning_budget: Some(reasoning_budget),
            sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
            ..ChatRequest::default()
        }
    }

    /// Chooses among the calls of a tool by the digit that the first argument begins with.
    fn preference(&self, arguments: &Value) -> Vec<(u32, f32)> {
        let first = arguments.as_object().and_then(|it| it.values().next()).expect("an argument");
        let text = first.as_str().map_or_else(|| first.to_string(), str::to_owned);
        let digit = text.get(..1).unwrap_or_default();
        let tokens = self.service.tokenizer().encode(digit, EncodeOptions::default());
        tokens.expect("a digit").into_iter().map(|token| (token, PREFERENCE)).collect()
    }
}

impl AgentModel for ForcedModel {
    fn messages(&self) -> &[Message] {
        self.inner.messages()
    }

    fn extend(&mut self, messages: Vec<Message>) {
        self.inner.extend(messages);
    }

    fn begin(
        &mut self,
        options: &AnswerOptions,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<AnswerStart, ApiError> {
        self.answers.asked.borrow_mut().push(Instant::now());
        let mut options = options.clone();
        let says = |text: &str| Some(GrammarSource::Choice(vec![text.to_owned()]));
        if options.grammar.is_some() {
            options.grammar = says(SUMMARY);
            return self.inner.begin(&options, is_cancelled);
        }
        match self.answers.to_come.borrow().front().expect("a planned answer") {
            PlannedAnswer::Call(tool, arguments) => {
                options.tool_choice = ToolChoice::Named(tool.clone());
                options.sampling.logit_bias = self.preference(arguments);
            }
            PlannedAnswer::Say(text) => {
                options.tool_choice = ToolChoice::None;
                options.grammar = says(text);
            }
        }
        self.inner.begin(&options, is_cancelled)
    }

    fn next(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<TextEvent> {
        self.inner.next(is_cancelled)
    }

    fn settle(&mut self) -> Option<SettledAnswer> {
        let settled = self.inner.settle()?;
        let is_planned = settled.message.text().as_deref() != Some(SUMMARY);
        if is_planned {
            self.answers.to_come.borrow_mut().pop_front();
        }
        Some(settled)
    }

    fn mark(&self) -> TranscriptMark {
        self.inner.mark()
    }

    fn rewind(&mut self, mark: TranscriptMark) {
        self.inner.rewind(mark);
    }

    fn restart(&mut self, messages: Vec<Message>) -> Result<(), ApiError> {
        self.inner.restart(messages)
    }

    fn used(&self) -> usize {
        self.inner.used()
    }

    fn context(&self) -> usize {
        self.inner.context()
    }
}
