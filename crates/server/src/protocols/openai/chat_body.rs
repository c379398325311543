//! The members of a chat completion's body that no other request has.

use crate::generate::constraint::ConstraintBody;
use crate::generate::options::OptionsBody;
use crate::generate::sampling::body::ChatSampling;
use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::openai::messages::ChatMessage;
use crate::protocols::openai::thinking::ThinkingBody;
use crate::protocols::openai::tools::{ChatTool, ChatToolChoice, Function};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What a chat completion is asked to be. Other members are ignored.
#[derive(Debug, ToSchema)]
#[allow(dead_code, reason = "describes what is read in parts")]
pub(crate) struct ChatCompletionRequest {
    #[serde(flatten)]
    chat: ChatBody,
    #[serde(flatten)]
    thinking: ThinkingBody,
    #[serde(flatten)]
    options: OptionsBody,
    #[serde(flatten)]
    constraint: ConstraintBody,
    #[serde(flatten)]
    sampling: ChatSampling,
}

/// The conversation and the tools.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ChatBody {
    #[schema(value_type = Vec<ChatMessage>, min_items = 1, max_items = 100000)]
    pub messages: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<ChatTool>>)]
    pub tools: Option<Vec<Value>>,
    #[schema(value_type = Option<ChatToolChoice>)]
    pub tool_choice: Option<Value>,
    /// More than one call may be made in one answer; true by default.
    pub parallel_tool_calls: Option<bool>,
    /// What tools were before; calls are then told as `function_call`.
    #[schema(value_type = Option<Vec<Function>>)]
    pub functions: Option<Vec<Value>>,
    /// What `tool_choice` was before: `none`, `auto`, or an object with a name.
    #[schema(value_type = Option<OldChoice>)]
    pub function_call: Option<Value>,
    /// Tell the log probability of every token.
    logprobs: Option<bool>,
    /// Tell as many of the likeliest tokens too; needs `logprobs`.
    #[serde(default, deserialize_with = "wire::count")]
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// Variables for the chat template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Have the template open the answer; true by default.
    pub add_generation_prompt: Option<bool>,
    /// The last message is the beginning of the answer.
    pub continue_final_message: Option<bool>,
    /// `none` leaves reasoning in the content.
    pub reasoning_format: Option<String>,
    #[allow(dead_code, reason = "only its type is checked")]
    modalities: Option<Vec<Modality>>,
    /// Not supported.
    #[schema(value_type = Option<Object>)]
    audio: Option<Value>,
    /// Taken, without effect.
    #[schema(value_type = Option<Object>)]
    #[allow(dead_code, reason = "only its type is checked")]
    metadata: Option<Map<String, Value>>,
    /// Taken; nothing is stored.
    #[allow(dead_code, reason = "only its type is checked")]
    store: Option<bool>,
    /// Taken; there is one tier.
    #[allow(dead_code, reason = "only its type is checked")]
    service_tier: Option<String>,
    /// Taken; the server guesses for itself.
    #[schema(value_type = Option<Object>)]
    #[allow(dead_code, reason = "only its type is checked")]
    prediction: Option<Map<String, Value>>,
    /// Taken, without effect.
    #[allow(dead_code, reason = "only its type is checked")]
    verbosity: Option<String>,
    /// Taken; what is cached is found by itself.
    #[allow(dead_code, reason = "only its type is checked")]
    prompt_cache_key: Option<String>,
}

/// What `tool_choice` was before.
#[derive(Debug, ToSchema)]
#[schema(as = ChatFunctionChoice)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is read by hand")]
enum OldChoice {
    Mode(OldMode),
    Named(Function),
}

/// Whether functions are called.
#[derive(Debug, ToSchema)]
#[schema(as = ChatFunctionMode)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes what is read by hand")]
enum OldMode {
    None,
    Auto,
}

/// What an answer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ChatModality)]
#[serde(rename_all = "lowercase")]
enum Modality {
    Text,
}

impl ChatBody {
    /// How many alternatives are returned beside each chosen token; `None` for no log
    /// probabilities.
    pub fn logprobs(&self) -> Result<Option<usize>, HttpError> {
        match (self.logprobs.unwrap_or(false), self.top_logprobs) {
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, Some(1..)) => {
                Err(HttpError::invalid("top_logprobs", "top_logprobs needs logprobs to be true"))
            }
            (false, _) => Ok(None),
        }
    }

    /// Answers are text.
    pub fn refuse_media(&self) -> Result<(), HttpError> {
        match self.audio {
            Some(_) => Err(HttpError::invalid("audio", "audio is not supported")),
            None => Ok(()),
        }
    }
}
