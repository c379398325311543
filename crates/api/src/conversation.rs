//! Renders messages to the tokens of a prompt. After a remembered turn that called tools, the
//! prompt is the tokens of that turn, followed by the rendered messages after it.

use crate::arrange::Arrangement;
use crate::cache_report::MessagePlace;
use crate::effort;
use crate::error::{ApiError, template_error};
use crate::length::TokenLimit;
use crate::marks::MarkFinder;
use crate::message::Message;
use crate::message_place::place_of;
use crate::prefill::{Prefill, opens_reasoning};
use crate::probed_template::ProbedTemplate;
use crate::reasoning_tags::{CLOSE, CLOSING};
use crate::replay::{ReplayMemory, digests};
use crate::request::{ChatRequest, Origin};
use crate::template_message::template_message;
use formats::ChatRules;
use serde_json::{Value, json};
use std::borrow::Cow;
use text::tool_formats::harmony::HARMONY;
use text::{Reasoning, RenderedPrompt, TextAssets, Thinking, ToolFormat};

/// Renders conversations for one model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renderer<'a> {
    pub assets: &'a TextAssets,
    pub probed: &'a ProbedTemplate,
    pub memory: &'a ReplayMemory,
    /// The part of the memory that is searched.
    pub space: [u8; 16],
    /// Ids that can end a turn.
    pub ends: &'a [u32],
    /// What is known of the family's chats.
    pub rules: Option<&'static ChatRules>,
    /// The vocabulary or the template has the tag of reasoning.
    pub thinks: bool,
    /// Tokens of the context.
    pub context: usize,
    /// Most tokens of the prompt.
    pub limit: TokenLimit,
    /// Whether marks are found.
    pub marks: bool,
}

/// A rendered prompt.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub tokens: Vec<u32>,
    /// Positions of `tokens` from which other prompts are likely to continue.
    pub marks: Vec<usize>,
    /// The variables of the template.
    input: Value,
    /// The text at the end of the prompt, after the tokens of a remembered turn.
    text: RenderedPrompt,
    /// The message before which that text begins, after such a turn.
    behind: Option<usize>,
    /// The prompt ends with the beginning of the answer.
    pub begun: bool,
    /// The beginning of the answer leaves its reasoning open.
    pub reasons: bool,
    pub origin: Origin,
}

impl Renderer<'_> {
    /// The text that ends reasoning on behalf of the model.
    pub fn closing(&self) -> &'static str {
        self.rules.map_or(CLOSING, |rules| rules.closing)
    }

    /// Renders the prompt of a conversation.
    pub fn prompt(&self, request: &ChatRequest) -> Result<Rendered, ApiError> {
        let messages = self.arranged(request);
        let input = self.input(request, &messages)?;
        let digests = digests(self.space, &setting(&input), &messages);
        let before = digests[messages.len()];
        // After the digests: a remembered turn is found on the next day too.
        let input = self.probed.template.with_defaults(input, None);
        let prefill = Prefill::of(request, self.closing(), self.thinks);
        let begun = prefill.is_some();
        if let Some((at, turn)) = self.memory.find(&messages, |at| digests[at])
            && let Some(mut rest) = self.behind(&input, at + 1)?
        {
            let mut tokens = turn.tokens();
            let shared = tokens.len();
            let reasons = prefill.is_some_and(|prefill| prefill.append(&mut rest));
            tokens.extend(self.tokens(shared, &rest)?);
            let origin = Origin { before, parent: Some(turn), shared };
            let (marks, behind) = (Vec::new(), Some(at + 1));
            let text = rest;
            let rendered = Rendered { tokens, marks, input, text, behind, begun, reasons, origin };
            return Ok(self.with_marks(rendered));
        }
        let rendered = self.assets.render(&self.probed.template, &input, None);
        let mut text = rendered.map_err(template_error)?;
        let reasons = prefill.is_some_and(|prefill| prefill.append(&mut text));
        let (tokens, marks) = (self.tokens(0, &text)?, Vec::new());
        let origin = Origin { before, parent: None, shared: 0 };
        let behind = None;
        let rendered = Rendered { tokens, marks, input, text, behind, begun, reasons, origin };
        Ok(self.with_marks(rendered))
    }

    /// The messages as the template takes them.
    fn arranged<'m>(&self, request: &'m ChatRequest) -> Cow<'m, [Message]> {
        let described = self.probed.describes().filter(|_| request.offers_tools());
        let described = described.map(|format| (&*request.tools, format, request.parallel_calls));
        let ProbedTemplate { rules, calls_as_text, .. } = self.probed;
        let (calls_as_text, tools) = (*calls_as_text, self.takes_tools(request));
        Arrangement { rules, calls_as_text, tools, described }.of(&request.messages)
    }

    fn tokens(&self, before: usize, prompt: &RenderedPrompt) -> Result<Vec<u32>, ApiError> {
        self.limit.whole(before, |most| self.assets.encode_within(prompt, most))
    }

    /// The same with its marks, where they are of use.
    fn with_marks(&self, rendered: Rendered) -> Rendered {
        if !self.marks {
            return rendered;
        }
        let marks = self.finder(&rendered, &self.end_texts()).marks().into_iter();
        let marks = marks.map(|mark| rendered.origin.shared + mark).collect();
        Rendered { marks, ..rendered }
    }

    /// The message to which token `at` of the prompt belongs, where that can be told.
    pub fn place(&self, rendered: &Rendered, at: usize) -> Option<MessagePlace> {
        let at = at.checked_sub(rendered.origin.shared)?;
        place_of(&self.finder(rendered, &self.end_texts()), at)
    }

    fn finder<'f>(&'f self, rendered: &'f Rendered, ends: &'f [&'f str]) -> MarkFinder<'f> {
        let Rendered { input, text: prompt, behind, origin, .. } = rendered;
        let (template, tokens) = (&self.probed.template, &rendered.tokens[origin.shared..]);
        MarkFinder { assets: self.assets, template, input, prompt, tokens, behind: *behind, ends }
    }

    /// The texts that can end a turn.
    fn end_texts(&self) -> Vec<&str> {
        let tokenizer = &self.assets.tokenizer;
        self.ends.iter().filter_map(|&id| tokenizer.id_to_token(id)).collect()
    }

    /// Renders the prompt as text, with control tokens.
    pub fn text(&self, request: &ChatRequest) -> Result<String, ApiError> {
        let Rendered { text, origin, .. } = self.prompt(request)?;
        let turns = origin.parent.map(|turn| turn.tokens()).unwrap_or_default();
        Ok(self.assets.tokenizer.decode(&turns, false) + &text.text)
    }

    /// The part of the prompt after the turn before message `at`.
    fn behind(&self, input: &Value, at: usize) -> Result<Option<RenderedPrompt>, ApiError> {
        let ends = self.end_texts();
        self.assets.render_behind(&self.probed.template, input, at, &ends).map_err(template_error)
    }

    /// The variables of the template. `tools` is undefined without tools, because templates test
    /// whether it is defined.
    fn input(&self, request: &ChatRequest, messages: &[Message]) -> Result<Value, ApiError> {
        let form = self.probed.call_form();
        let messages = messages.iter().map(|message| template_message(message, form));
        let mut input = request.template_kwargs.clone();
        effort::apply(&mut input, self.rules, self.context)?;
        input.insert("messages".into(), messages.collect());
        input.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
        if self.takes_tools(request) {
            let tool = |tool| self.probed.rules.tool(tool);
            input.insert("tools".into(), request.tools.iter().map(tool).collect());
        }
        Ok(Value::Object(input))
    }

    /// Whether the template gets the tools of a request.
    fn takes_tools(&self, request: &ChatRequest) -> bool {
        request.offers_tools() && self.probed.describes().is_none()
    }
}

/// Whether an answer may contain reasoning, given the end of its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// The prompt opens the reasoning.
    opened: bool,
    /// The prompt has text of the reasoning, which the answer continues.
    continued: bool,
    /// The prompt closes the reasoning.
    closed: bool,
    /// The answer may contain reasoning; an answer with a given beginning does not.
    pub may_reason: bool,
}

impl Beginning {
    /// Examines the end of a prompt, for a model that `thinks` or not.
    pub fn of(rendered: &Rendered, thinks: bool) -> Self {
        let Rendered { ref text, begun, reasons: continued, .. } = *rendered;
        let tail = &text.text;
        let opened = if begun { continued } else { opens_reasoning(tail) };
        let closed = tail.trim_end().ends_with(CLOSE);
        let may_reason = opened || (thinks && !begun);
        Self { opened, continued, closed, may_reason }
    }

    /// Where the output parser looks for reasoning.
    pub fn reasoning(&self) -> Reasoning {
        match self.may_reason {
            true if self.continued => Reasoning::Continued,
            true if self.opened => Reasoning::Open,
            true => Reasoning::Possible,
            false => Reasoning::Unsplit,
        }
    }

    /// Where reasoning may precede the text that a grammar constrains.
    pub fn thinking(&self, format: Option<&'static ToolFormat>) -> Thinking {
        match self.may_reason {
            _ if format == Some(&HARMONY) => Thinking::Channels,
            true if self.opened => Thinking::Open,
            true if !self.closed => Thinking::Possible,
            _ => Thinking::None,
        }
    }
}

/// The template's variables without the messages.
fn setting(input: &Value) -> Value {
    let mut setting = input.clone();
    if let Some(members) = setting.as_object_mut() {
        members.shift_remove("messages");
        members.shift_remove("add_generation_prompt");
    }
    setting
}
