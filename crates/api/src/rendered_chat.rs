//! Rendered conversations: the tokens of a prompt, and how its answer begins. After a remembered
//! turn that called tools, the prompt is the tokens of that turn, followed by the rendered messages
//! after it.

use crate::error::{ApiError, template_error};
use crate::length::TokenLimit;
use crate::prefill::{Prefill, opens_reasoning};
use crate::probed_template::ProbedTemplate;
use crate::reasoning_tags::ReasoningTags;
use crate::replay_turn::{Digested, ReplayTurn};
use crate::request::{ChatRequest, Origin, OutputSpec};
use serde_json::Value;
use std::sync::Arc;
use text::{OutputForm, Reasoning, RenderedPrompt, TextAssets, Thinking, ToolFormat};

/// What a conversation is rendered from.
#[derive(Debug)]
pub(crate) struct ChatSource<'a> {
    pub request: &'a ChatRequest,
    pub assets: &'a TextAssets,
    pub probed: &'a ProbedTemplate,
    /// The variables of the template.
    pub input: Value,
    /// The texts that can end a turn.
    pub ends: Vec<&'a str>,
    /// The tags of reasoning.
    pub tags: ReasoningTags,
    /// The vocabulary or the template has the tag of reasoning.
    pub thinks: bool,
}

/// A rendered conversation.
#[derive(Debug)]
pub(crate) struct RenderedChat<'a> {
    pub source: ChatSource<'a>,
    /// The tokens of the prompt.
    pub tokens: Vec<u32>,
    /// The text at the end of the prompt, after the tokens of a remembered turn.
    pub text: RenderedPrompt,
    /// The message with which that text begins, after such a turn; `None` if the text is that of
    /// the whole conversation.
    pub first_message: Option<usize>,
    pub origin: Origin,
    /// Where the answer may contain reasoning, whether it is reported separately or not.
    pub reasoning: Reasoning,
    /// Where reasoning may precede the text that a grammar constrains.
    pub thinking: Thinking,
    /// How the answer is parsed.
    pub form: OutputSpec,
}

impl<'a> ChatSource<'a> {
    /// Renders the conversation, which has the digest `before`. `turn` is the last of its messages
    /// that is a remembered turn.
    ///
    /// # Errors
    /// If the template refuses the messages, or the tokens are more than `limit`.
    pub fn rendered(
        self,
        before: Digested,
        turn: Option<(usize, Arc<ReplayTurn>)>,
        limit: TokenLimit,
    ) -> Result<RenderedChat<'a>, ApiError> {
        let rest = turn.as_ref().map(|(at, _)| self.rest(at + 1)).transpose()?.flatten();
        // Without the end of the turn in the text, its tokens are of no use.
        let turn = turn.filter(|_| rest.is_some());
        let mut text = rest.map_or_else(|| self.whole(), Ok)?;
        let (first_message, parent) = turn.map(|(at, turn)| (at + 1, turn)).unzip();
        let prefill = Prefill::of(self.request, self.tags, self.thinks);
        let continued = prefill.map(|prefill| prefill.append(&mut text));
        let mut tokens = parent.as_ref().map(|turn| turn.tokens()).unwrap_or_default();
        let shared = tokens.len();
        tokens.extend(limit.whole(shared, |most| self.assets.encode_within(&text, most))?);
        let reasoning = self.reasoning(&text.text, continued);
        Ok(RenderedChat {
            tokens,
            first_message,
            origin: Origin { before, parent, shared },
            reasoning,
            thinking: self.thinking(&text.text, reasoning),
            form: self.form(reasoning, continued.is_some()),
            text,
            source: self,
        })
    }

    /// The text of the whole conversation.
    fn whole(&self) -> Result<RenderedPrompt, ApiError> {
        let rendered = self.assets.render(&self.probed.template, &self.input, None);
        rendered.map_err(template_error)
    }

    /// The text from the end of the turn before message `at` on, where that end is found.
    fn rest(&self, at: usize) -> Result<Option<RenderedPrompt>, ApiError> {
        let template = &self.probed.template;
        let rest = self.assets.render_behind(template, &self.input, at, &self.ends);
        rest.map_err(template_error)
    }

    /// Where the answer to `prompt` may contain reasoning. `continued` says of a given beginning of
    /// the answer whether it leaves its reasoning open; if it does not, the answer has none.
    fn reasoning(&self, prompt: &str, continued: Option<bool>) -> Reasoning {
        match continued {
            Some(true) => Reasoning::Continued,
            None if opens_reasoning(prompt, self.tags) => Reasoning::Open,
            None if self.thinks => Reasoning::Possible,
            Some(false) | None => Reasoning::Unsplit,
        }
    }

    /// Where reasoning may precede the text of the answer to `prompt` that a grammar constrains.
    fn thinking(&self, prompt: &str, reasoning: Reasoning) -> Thinking {
        let is_closed = prompt.trim_end().ends_with(self.tags.close);
        match reasoning {
            _ if self.probed.format.is_some_and(ToolFormat::reads_answers) => Thinking::Channels,
            Reasoning::Continued | Reasoning::Open => Thinking::Open,
            Reasoning::Possible if !is_closed => Thinking::Possible,
            Reasoning::Possible | Reasoning::Unsplit => Thinking::None,
        }
    }

    /// How an answer with this reasoning is parsed, which `continues` a given beginning or not.
    fn form(&self, reasoning: Reasoning, continues: bool) -> OutputSpec {
        let ChatRequest { split_reasoning, parallel_calls, call_prefix, .. } = *self.request;
        let reasoning = if split_reasoning { reasoning } else { Reasoning::Unsplit };
        let (format, tools) = (self.probed.format, self.request.signatures().into());
        let output = OutputForm { reasoning, format, tools, parallel: parallel_calls };
        OutputSpec { output, call_prefix, continues }
    }
}
