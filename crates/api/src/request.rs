//! Requests of callers, and requests that are rendered, tokenized and checked.

use crate::message::{Message, Tool};
use crate::options::SamplingOptions;
use crate::replay::{Digested, ReplayTurn};
use engine::{Request, Speculate};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use text::{GrammarSource, OutputForm, Reasoning};

/// Whether an answer calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model thinks best.
    #[default]
    Auto,
    /// It does not, although the prompt may tell of them.
    None,
    /// It calls at least one.
    Required,
    /// It calls this one.
    Named(String),
}

/// The next message of a conversation.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The messages so far. Arguments of calls are objects where they are valid JSON.
    pub messages: Vec<Message>,
    /// Tools the model may call; none leaves the template's tools undefined.
    pub tools: Vec<Tool>,
    /// Whether they may, must or must not be called.
    pub tool_choice: ToolChoice,
    /// More than one call may be made in one answer.
    pub parallel_calls: bool,
    /// What the ids of calls begin with.
    pub call_prefix: &'static str,
    /// Most tokens of reasoning; it is closed when they are used up.
    pub reasoning_budget: Option<usize>,
    /// Ids of an exchange that goes before, as it was computed.
    pub earlier: Vec<u32>,
    /// Further variables of the template, such as `enable_thinking`.
    pub template_kwargs: Map<String, Value>,
    /// Ask the template to open the answer.
    pub add_generation_prompt: bool,
    /// How the answer's content begins; what is generated goes on from there.
    pub prefill: Option<String>,
    /// Give reasoning apart from content, where the model thinks.
    pub split_reasoning: bool,
    /// How to sample.
    pub sampling: SamplingOptions,
    /// What the answer is held to, its reasoning apart.
    pub grammar: Option<GrammarSource>,
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_calls: true,
            call_prefix: "call_",
            reasoning_budget: None,
            earlier: Vec::new(),
            template_kwargs: Map::new(),
            add_generation_prompt: true,
            prefill: None,
            split_reasoning: true,
            sampling: SamplingOptions::default(),
            grammar: None,
        }
    }
}

/// The continuation of a text.
#[derive(Clone, Debug)]
pub struct TextRequest {
    /// What to continue.
    pub prompt: Prompt,
    /// Add the tokens a text of this model begins with, such as BOS. Ids are taken as they are.
    pub add_special: bool,
    /// How to sample.
    pub sampling: SamplingOptions,
    /// What the continuation is held to.
    pub grammar: Option<GrammarSource>,
}

/// A prompt, tokenized or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// As text, in which special tokens are recognised.
    Text(String),
    /// As token ids.
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Options of a request that do not change its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Lower goes first; 0 is ordinary.
    pub priority: i32,
    /// The tenant; tenants share the machine evenly. `None` is the common one.
    pub tenant: Option<String>,
    /// How tokens are drafted; `None` for the engine's default.
    pub speculate: Option<Speculate>,
    /// Longest time from submission to the end; `None` for the engine's own limit.
    pub timeout: Option<Duration>,
    /// What the answer is called in traces.
    pub name: Option<String>,
}

/// A request that is rendered, tokenized and within the model's limits. Holds no place in the
/// queue yet.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) request: Request,
    pub(crate) stop: Vec<String>,
    pub(crate) form: OutputSpec,
    pub(crate) origin: Option<Origin>,
}

impl Prepared {
    /// Ids of the prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.request.prompt
    }
}

/// How an answer's tokens are read.
#[derive(Clone, Debug)]
pub(crate) struct OutputSpec {
    pub output: OutputForm,
    /// What the ids of calls begin with.
    pub call_prefix: &'static str,
    /// The answer goes on where the prompt ended, so that a space it begins with counts.
    pub continues: bool,
}

impl OutputSpec {
    /// Of an answer that is text and nothing else.
    pub fn plain(continues: bool) -> Self {
        let (reasoning, tools) = (Reasoning::Unsplit, Arc::default());
        let output = OutputForm { reasoning, format: None, tools, parallel: true };
        Self { output, call_prefix: "", continues }
    }
}

/// Where a conversation stands, for the memory of its turns.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub before: Digested,
    /// The turn whose tokens the prompt begins with.
    pub parent: Option<Arc<ReplayTurn>>,
    /// How many tokens those are.
    pub shared: usize,
}
