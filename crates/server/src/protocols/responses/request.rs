//! The body of `POST /v1/responses`.

use crate::generate::options::OptionsBody;
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::wire::{self, Object, body};
use crate::protocols::openai::sampling::ChatSampling;
use crate::protocols::openai::thinking::ThinkingBody;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::GrammarSource;
use utoipa::ToSchema;

body! {
    /// A request for a response: what it alone has, and what it shares with chat completions.
    pub(crate) struct ResponseBody {
        pub asked: CreateResponse,
        pub thinking: ThinkingBody,
        pub options: OptionsBody,
        pub sampling: ChatSampling,
    }
}

/// What a response is asked to be. Sampling members of chat completions, such as `seed`, `stop`
/// and `top_k`, are taken too.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateResponse {
    /// The name of a model; any name where one is served.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// A text, or an array of items: messages, function calls and their outputs, reasoning,
    /// references to items of stored responses.
    pub input: Option<ResponseInput>,
    /// The first system message.
    pub instructions: Option<String>,
    /// The stored response that this one continues. Its instructions are not carried over.
    pub previous_response_id: Option<String>,
    /// The conversation that this response continues and is added to: its id, or an object with
    /// the member `id`. Not together with `previous_response_id`.
    pub conversation: Option<ConversationReference>,
    /// Not supported.
    #[schema(value_type = Option<Object>)]
    pub prompt: Option<Value>,
    /// Functions, custom tools and namespaces of them; others are left out with a warning.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Vec<Value>>,
    /// `auto`, `none`, `required`, or an object that names a tool or those allowed.
    pub tool_choice: Option<ResponseInput>,
    pub parallel_tool_calls: Option<bool>,
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<usize>,
    /// Taken and not needed: it limits tools that the server runs.
    pub max_tool_calls: Option<usize>,
    #[schema(maximum = 20)]
    pub top_logprobs: Option<usize>,
    /// `reasoning.encrypted_content` and `message.output_text.logprobs` are heeded.
    pub include: Option<Vec<String>>,
    pub reasoning: Option<ReasoningOptions>,
    pub text: Option<TextOptions>,
    pub truncation: Option<Truncation>,
    /// When a conversation is to be made shorter by itself: never, which an answer says in its
    /// `warnings`.
    pub context_management: Option<Vec<ContextManagement>>,
    /// Keep the response; true by default.
    pub store: Option<bool>,
    /// Compute without the client; the response is polled.
    pub background: Option<bool>,
    pub stream: Option<bool>,
    /// False computes the prompt alone, so that a response that continues this one begins sooner.
    pub generate: Option<bool>,
    pub metadata: Option<Object>,
    /// The user of the request: the users of a key share its part of the machine evenly.
    pub user: Option<String>,
    /// As `user`.
    pub safety_identifier: Option<String>,
    pub prompt_cache_key: Option<String>,
    /// Only requests with the same salt find each other's prompts in the caches, and continue each
    /// other's responses; as in vLLM.
    #[serde(rename = "cache_salt")]
    #[schema(min_length = 1, max_length = 256)]
    _cache_salt: Option<String>,
    /// There is one.
    pub service_tier: Option<String>,
    /// Variables for the chat template; an extension.
    pub chat_template_kwargs: Option<Object>,
}

/// When a conversation is to be made shorter.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ContextManagement {
    /// `compaction`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Tokens of the prompt.
    #[serde(rename = "compact_threshold")]
    _compact_threshold: Option<usize>,
}

described! {
    /// The id of a conversation, or an object that has it.
    pub(crate) value ConversationReference = (String) | { id: (String) };
    /// A text or items.
    pub(crate) value ResponseInput as "Input" = (String) | (Vec<Object>);
}

/// How to reason.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ReasoningWish)]
pub(crate) struct ReasoningOptions {
    /// For the chat template: `none`, which switches thinking off, `minimal`, `low`, `medium`,
    /// `high`, `xhigh`, `max`, or what else the template knows.
    pub effort: Option<String>,
    pub summary: Option<SummaryKind>,
    /// Older name of `summary`.
    pub generate_summary: Option<SummaryKind>,
}

/// Which summary of reasoning is sent besides its content; all give the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Summary)]
pub(crate) enum SummaryKind {
    Auto,
    Concise,
    Detailed,
    None,
}

/// What the text of the answer shall be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = TextWish)]
pub(crate) struct TextOptions {
    pub format: Option<Format>,
    /// For the chat template.
    pub verbosity: Option<String>,
}

/// The form of the text.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Format {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the schema.
    pub name: Option<String>,
    /// Taken, and not told to the model.
    pub description: Option<String>,
    /// The JSON schema that the text is valid against.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// Whether a part of the schema that cannot be enforced is an error; it is left out otherwise.
    pub strict: Option<bool>,
}

impl Format {
    /// The grammar that a text of this form matches; `path` is the form's place in the body.
    ///
    /// # Errors
    /// If the form is unknown, or its schema is missing.
    pub fn grammar(&self, path: &str) -> Result<Option<GrammarSource>, HttpError> {
        match (self.kind.as_str(), &self.schema) {
            ("text", _) => Ok(None),
            ("json_object", _) => Ok(Some(GrammarSource::JsonObject)),
            ("json_schema", Some(schema)) if self.strict == Some(true) => {
                Ok(Some(GrammarSource::JsonSchema(schema.clone())))
            }
            ("json_schema", Some(schema)) => Ok(Some(GrammarSource::LooseSchema(schema.clone()))),
            ("json_schema", None) => Err(wire::missing(&format!("{path}.schema"))),
            (kind, _) => {
                let problem = format!("must be text, json_object or json_schema, not {kind}");
                Err(HttpError::member(&format!("{path}.type"), problem))
            }
        }
    }

    /// The form as the response shows it: with all its members.
    pub fn shown(&self) -> Value {
        let Self { kind, name, description, schema, strict } = self;
        match schema {
            None => json!({ "type": kind }),
            Some(schema) => json!({
                "type": kind, "name": name, "description": description, "schema": schema,
                "strict": strict.unwrap_or(false),
            }),
        }
    }
}

/// What is done with a prompt that is too long; it is refused in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Truncation {
    Auto,
    Disabled,
}
