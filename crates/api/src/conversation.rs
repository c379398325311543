//! Renders conversations: finds the template, arranges the messages for it, sets its variables and
//! looks for a remembered turn that called tools, from whose tokens the prompt continues.

use crate::arrange::Arrangement;
use crate::description::TextParts;
use crate::effort;
use crate::error::ApiError;
use crate::length::TokenLimit;
use crate::message::{Message, Role};
use crate::probed_template::{ProbedTemplate, ProbedTemplates};
use crate::reasoning_tags::ReasoningTags;
use crate::rendered_chat::{ChatSource, RenderedChat};
use crate::replay::{ReplayMemory, digests};
use crate::replay_turn::ReplayTurn;
use crate::request::ChatRequest;
use crate::template_message::template_message;
use formats::{ChatRules, families};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use text::{ChatTemplate, TextAssets, ToolFormat};

/// Renders the conversations of one model. Clones share the templates and the memory.
#[derive(Clone, Debug)]
pub(crate) struct ChatRenderer {
    pub assets: Arc<TextAssets>,
    pub templates: Arc<ProbedTemplates>,
    /// The turns that are found again.
    pub memory: Arc<ReplayMemory>,
    /// What is known of the family's chats.
    rules: Option<&'static ChatRules>,
    /// The vocabulary or the template has the tag of reasoning.
    thinks: bool,
    /// Tokens of the context.
    context: usize,
}

/// What conversations with one model may differ in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChatTerms<'a> {
    /// The part of the memory that is searched.
    pub space: [u8; 16],
    /// Ids that can end a turn.
    pub ends: &'a [u32],
    /// Most tokens of the prompt.
    pub limit: TokenLimit,
    /// The last answer of the conversation, where its tokens are known; else it is looked for in
    /// the memory.
    pub last: Option<&'a Arc<ReplayTurn>>,
}

impl ChatRenderer {
    /// A renderer for a model of the family `architecture`, with `context` tokens of context.
    /// `template` replaces those of the model; calls are in `format`, or in the one that the
    /// template shows.
    pub fn new(
        assets: Arc<TextAssets>,
        template: Option<ChatTemplate>,
        format: Option<&'static ToolFormat>,
        architecture: &str,
        context: usize,
    ) -> Self {
        let thinks = TextParts { assets: &assets, template: template.as_ref() }.thinks();
        let templates = Arc::new(ProbedTemplates::new(template, &assets, format));
        let rules = families::chat_rules(architecture);
        Self { assets, templates, memory: Arc::default(), rules, thinks, context }
    }

    /// The tokenizer and the templates.
    pub fn parts(&self) -> TextParts<'_> {
        TextParts { assets: &self.assets, template: self.templates.replacement() }
    }

    /// The format of answers, if it is known.
    pub fn format(&self) -> Option<&'static ToolFormat> {
        let formats = [false, true].map(|tools| self.templates.of(tools).ok()?.format);
        formats.into_iter().flatten().next()
    }

    /// Renders the prompt of a conversation.
    ///
    /// # Errors
    /// If there is no template, it refuses the messages, or the prompt is too long.
    pub fn chat<'a>(
        &'a self,
        request: &'a ChatRequest,
        terms: ChatTerms<'a>,
    ) -> Result<RenderedChat<'a>, ApiError> {
        let probed = self.templates.of(request.offers_tools())?;
        terms.limit.check_chat(request, probed, &self.assets.tokenizer)?;
        self.rendered(request, probed, terms)
    }

    /// Renders the prompt of a conversation as text, with control tokens.
    ///
    /// # Errors
    /// Those of [`chat`](Self::chat).
    pub fn text(&self, request: &ChatRequest, terms: ChatTerms<'_>) -> Result<String, ApiError> {
        let probed = self.templates.of(request.offers_tools())?;
        let RenderedChat { text, origin, .. } = self.rendered(request, probed, terms)?;
        let turns = origin.parent.map(|turn| turn.tokens()).unwrap_or_default();
        Ok(self.assets.tokenizer.decode(&turns, false) + &text.text)
    }

    fn rendered<'a>(
        &'a self,
        request: &'a ChatRequest,
        probed: &'a ProbedTemplate,
        terms: ChatTerms<'a>,
    ) -> Result<RenderedChat<'a>, ApiError> {
        let ChatTerms { space, ends, limit, last } = terms;
        let tokenizer = &self.assets.tokenizer;
        let messages = arranged(request, probed);
        let input = self.input(request, probed, &messages)?;
        let digests = digests(space, &setting(&input), &messages);
        let turn = match last {
            Some(turn) => answer_at(&request.messages, &messages).map(|at| (at, Arc::clone(turn))),
            None => self.memory.find(&messages, |at| digests[at]),
        };
        let source = ChatSource {
            request,
            assets: &self.assets,
            probed,
            // After the digests: a remembered turn is found on the next day too.
            input: probed.template.with_defaults(input, None),
            ends: ends.iter().filter_map(|&id| tokenizer.id_to_token(id)).collect(),
            tags: ReasoningTags::of(probed.format, self.rules),
            thinks: self.thinks,
        };
        source.rendered(digests[messages.len()], turn, limit)
    }

    /// The variables of the template. `tools` is undefined without tools, because templates test
    /// whether it is defined.
    fn input(
        &self,
        request: &ChatRequest,
        probed: &ProbedTemplate,
        messages: &[Message],
    ) -> Result<Value, ApiError> {
        let form = probed.call_form();
        let messages = messages.iter().map(|message| template_message(message, form));
        let mut input = request.template_kwargs.clone();
        effort::apply(&mut input, self.rules, self.context)?;
        if probed.template.mentions(effort::STRENGTH) {
            effort::strength(&mut input);
        }
        input.insert("messages".into(), messages.collect());
        input.insert("add_generation_prompt".into(), json!(request.add_generation_prompt));
        if takes_tools(request, probed) {
            let tool = |tool| probed.rules.tool(tool);
            input.insert("tools".into(), request.tools.iter().map(tool).collect());
        }
        Ok(Value::Object(input))
    }
}

/// The number of the last answer of `given` in the arranged messages; `None` if it became several.
fn answer_at(given: &[Message], arranged: &[Message]) -> Option<usize> {
    let is_answer = |message: &&Message| message.role == Role::Assistant;
    let answer = given.iter().rfind(is_answer)?;
    let is_empty = |message: &Message| {
        message.calls.is_empty() && message.text().is_none_or(|text| text.is_empty())
    };
    let mut answers = (0..arranged.len()).rev().filter(|at| is_answer(&&arranged[*at]));
    let mut last = answers.next()?;
    // An empty answer that stands between results and a question is nobody's.
    if is_empty(&arranged[last]) && !is_empty(answer) {
        last = answers.next()?;
    }
    (arranged[last].calls.len() == answer.calls.len()).then_some(last)
}

/// The messages as the template takes them.
fn arranged<'m>(request: &'m ChatRequest, probed: &ProbedTemplate) -> Cow<'m, [Message]> {
    let described = probed.describes().filter(|_| request.offers_tools());
    let described = described.map(|format| (&*request.tools, format, request.parallel_calls));
    let ProbedTemplate { rules, calls_as_text, .. } = probed;
    let (calls_as_text, tools) = (*calls_as_text, takes_tools(request, probed));
    Arrangement { rules, calls_as_text, tools, described }.of(&request.messages)
}

/// Whether the template gets the tools of a request.
fn takes_tools(request: &ChatRequest, probed: &ProbedTemplate) -> bool {
    request.offers_tools() && probed.describes().is_none()
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
