//! Requests of callers, and prepared requests: rendered, tokenized and checked.

use crate::cache_watch::KnownCaller;
use crate::message::{Message, Tool};
use crate::options::SamplingOptions;
use crate::receipt::ReceiptKey;
use crate::replay_turn::{Digested, ReplayTurn};
use engine::{Request, Speculate};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use text::{GrammarSource, OutputForm, Reasoning, ToolSignature};

/// Whether an answer calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The answer calls no tool.
    None,
    /// The answer calls at least one tool.
    Required,
    /// The answer calls the named tool.
    Named(String),
}

/// A request for the next message of a conversation.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The messages so far. Arguments of calls are objects where they are valid JSON.
    pub messages: Vec<Message>,
    /// Tools that the model may call; an empty list leaves the template's `tools` undefined.
    pub tools: Vec<Tool>,
    /// Whether tools may, must or must not be called.
    pub tool_choice: ToolChoice,
    /// Whether the prompt has the tools where [`ToolChoice::None`] lets the answer call none.
    pub tools_stay: bool,
    /// More than one call may be made in one answer.
    pub parallel_calls: bool,
    /// Prefix of the ids of calls.
    pub call_prefix: &'static str,
    /// Most tokens of reasoning, which is closed when they are used up.
    pub reasoning_budget: Option<usize>,
    /// Token ids of an earlier exchange, placed before the prompt.
    pub earlier: Vec<u32>,
    /// Further variables of the template, such as `enable_thinking`.
    pub template_kwargs: Map<String, Value>,
    /// Ask the template to open the answer.
    pub add_generation_prompt: bool,
    /// The beginning of the answer's content, which generation continues.
    pub prefill: Option<String>,
    /// The beginning of the answer's reasoning, which generation continues; it counts only if
    /// `prefill` is empty.
    pub prefill_reasoning: Option<String>,
    /// Report reasoning separately from content.
    pub split_reasoning: bool,
    /// Sampling options.
    pub sampling: SamplingOptions,
    /// The grammar of the answer after its reasoning.
    pub grammar: Option<GrammarSource>,
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            tools_stay: false,
            parallel_calls: true,
            call_prefix: "call_",
            reasoning_budget: None,
            earlier: Vec::new(),
            template_kwargs: Map::new(),
            add_generation_prompt: true,
            prefill: None,
            prefill_reasoning: None,
            split_reasoning: true,
            sampling: SamplingOptions::default(),
            grammar: None,
        }
    }
}

impl ChatRequest {
    /// Whether the tools are part of the prompt.
    pub(crate) fn offers_tools(&self) -> bool {
        !self.tools.is_empty() && (self.tool_choice != ToolChoice::None || self.tools_stay)
    }

    /// Names and parameters of the tools that an answer may call.
    pub(crate) fn signatures(&self) -> Vec<ToolSignature> {
        let tools = match self.tool_choice {
            ToolChoice::None => &[],
            _ => &self.tools[..],
        };
        let named = tools.iter().filter(|tool| !tool.name.is_empty());
        let signature = |tool: &Tool| {
            let (name, parameters) = (tool.name.clone(), tool.parameters.clone());
            ToolSignature { name, parameters }
        };
        named.map(signature).collect()
    }
}

/// A request for the continuation of a text.
#[derive(Clone, Debug)]
pub struct TextRequest {
    /// The text to continue.
    pub prompt: Prompt,
    /// Add the tokens with which a text of the model begins, such as BOS. A prompt of ids is
    /// unchanged.
    pub add_special: bool,
    /// Sampling options.
    pub sampling: SamplingOptions,
    /// The grammar of the continuation.
    pub grammar: Option<GrammarSource>,
}

impl TextRequest {
    /// A request for the continuation of a prompt, with the defaults of everything else.
    pub fn new(prompt: impl Into<Prompt>) -> Self {
        let sampling = SamplingOptions::default();
        Self { prompt: prompt.into(), add_special: true, sampling, grammar: None }
    }
}

/// A prompt: text or token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, in which special tokens are recognised.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Self {
        Self::Ids(ids)
    }
}

impl From<&[u32]> for Prompt {
    fn from(ids: &[u32]) -> Self {
        Self::Ids(ids.to_vec())
    }
}

impl<const N: usize> From<[u32; N]> for Prompt {
    fn from(ids: [u32; N]) -> Self {
        Self::Ids(ids.to_vec())
    }
}

/// Options that do not change the answer of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Priority: lower values are served first; the default is 0.
    pub priority: i32,
    /// The tenant; tenants share the machine evenly. `None` for the anonymous tenant.
    pub tenant: Option<String>,
    /// The user among the tenant's, who share the tenant's part evenly.
    pub user: Option<String>,
    /// Only requests with the same salt share the caches.
    pub cache_salt: Option<String>,
    /// Speculative decoding; `None` for the engine's setting.
    pub speculate: Option<Speculate>,
    /// Maximum number of tokens drafted per step; `None` for that of `speculate`.
    pub max_drafted: Option<usize>,
    /// The text that the answer is expected to be, from which tokens are drafted.
    pub prediction: Option<String>,
    /// Time limit from submission to the end; `None` for the engine's limit.
    pub timeout: Option<Duration>,
    /// Name of the request in traces.
    pub name: Option<String>,
    /// Report how much of the prompt is computed, as [`TextEvent::Prefill`].
    ///
    /// [`TextEvent::Prefill`]: crate::TextEvent::Prefill
    pub progress: bool,
    /// Give a receipt of the answer.
    pub receipt: bool,
    /// The key that signs it.
    pub receipt_key: Option<ReceiptKey>,
}

/// The strings that end an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopTexts {
    pub strings: Vec<String>,
    /// Whether the one that ends the answer is part of it.
    pub included: bool,
}

/// A request that is rendered, tokenized and within the model's limits. A prepared request holds no
/// queue slot.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) request: Request,
    pub(crate) stop: StopTexts,
    pub(crate) form: OutputSpec,
    pub(crate) origin: Option<Origin>,
    /// Present if the caller is known.
    pub(crate) caller: Option<KnownCaller>,
    pub(crate) warnings: Vec<String>,
}

impl Prepared {
    /// Sentences about what the request asked for and does not get, such as parts of a schema that
    /// cannot be enforced.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Ids of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.request.prompt
    }

    /// Has the prompt computed anew, without the caches, which keep nothing of it.
    pub fn compute_anew(&mut self) {
        self.request.cold = true;
    }

    /// Tokens that the prompt shares with the caller's nearest earlier one; `None` if the caller is
    /// not known.
    pub fn own_prefix(&self) -> Option<usize> {
        self.caller.as_ref().map(|caller| caller.past.shared())
    }

    /// Positions of the prompt from which the prompts of other turns are likely to continue; none
    /// if the model has no use for them.
    pub fn marks(&self) -> &[usize] {
        &self.request.marks
    }
}

/// How the tokens of an answer are parsed.
#[derive(Clone, Debug)]
pub(crate) struct OutputSpec {
    pub output: OutputForm,
    /// Prefix of the ids of calls.
    pub call_prefix: &'static str,
    /// The answer continues the text of the prompt, so that a leading space is kept.
    pub continues: bool,
}

impl OutputSpec {
    /// Whether the answer may have calls that are read.
    pub fn calls_tools(&self) -> bool {
        self.output.format.is_some() && !self.output.tools.is_empty()
    }

    /// The form of an answer without reasoning and calls.
    pub fn plain(continues: bool) -> Self {
        let (reasoning, tools) = (Reasoning::Unsplit, Arc::default());
        let output = OutputForm { reasoning, format: None, tools, parallel: true };
        Self { output, call_prefix: "", continues }
    }
}

/// The conversation of a request, for the memory of turns.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub before: Digested,
    /// The turn with whose tokens the prompt begins.
    pub parent: Option<Arc<ReplayTurn>>,
    /// Number of these tokens.
    pub shared: usize,
}
