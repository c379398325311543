//! `POST /v1/chat/completions`: the request, from its body to what is computed.

use crate::generate::constraint::{ConstraintBody, ConstraintField};
use crate::generate::flow::{self, Delivery, Generation, Reply};
use crate::generate::logprobs;
use crate::generate::options::OptionsBody;
use crate::generate::speculation;
use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::refusals::Refusals;
use crate::http::request::RequestContext;
use crate::http::wire::{self, Object, body};
use crate::protocols::openai::answer::{Completion, Heading};
use crate::protocols::openai::chat_answer::{ChatAnswer, ChatChoice, ChatStyle, ChunkChoice};
use crate::protocols::openai::custom_tools::CustomTools;
use crate::protocols::openai::messages::{self, ChatMessage};
use crate::protocols::openai::problem::Problem;
use crate::protocols::openai::sampling::ChatSampling;
use crate::protocols::openai::thinking::ThinkingBody;
use crate::protocols::openai::tools::{self, ChatTool, ChatToolChoice, Function};
use crate::protocols::unsupported::{self, Unsupported, is_off, is_one};
use crate::protocols::warnings::{UNUSED, Warnings};
use api::{
    ApiError, ChatRequest, Message, RequestOptions, Role, SamplingOptions, Service, Tool,
    ToolChoice,
};
use axum::body::Body;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The next message of a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "OpenAI",
    request_body = ChatCompletionRequest,
    responses((status = 200, content((Completion<ChatChoice> = "application/json"),
        (Completion<ChunkChoice> = "text/event-stream"))), Refusals<Problem>))]
pub(crate) async fn chat_completions(
    context: RequestContext,
    body: Body,
) -> Result<Response, HttpError> {
    flow::generate(context, body, prepare).await
}

body! {
    /// What a chat completion is asked to be. Other members are ignored.
    pub(crate) struct ChatCompletionRequest {
        chat: ChatBody,
        thinking: ThinkingBody,
        options: OptionsBody,
        constraint: ConstraintBody,
        sampling: ChatSampling,
    }
}

/// The conversation and the tools.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct ChatBody {
    #[schema(value_type = Vec<ChatMessage>, min_items = 1, max_items = 100000)]
    messages: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<ChatTool>>)]
    tools: Option<Vec<Value>>,
    tool_choice: Option<ChatToolChoice>,
    /// More than one call may be made in one answer; true by default.
    parallel_tool_calls: Option<bool>,
    /// What tools were before; calls are then returned as `function_call`.
    #[schema(value_type = Option<Vec<Function>>)]
    functions: Option<Vec<Value>>,
    /// What `tool_choice` was before: `none`, `auto`, or an object with a name.
    function_call: Option<OldChoice>,
    /// Return the log probability of every token.
    logprobs: Option<bool>,
    /// Return as many of the likeliest tokens too; needs `logprobs`.
    #[schema(maximum = 20)]
    top_logprobs: Option<usize>,
    /// Variables for the chat template.
    chat_template_kwargs: Option<Object>,
    /// Have the template open the answer; true by default.
    add_generation_prompt: Option<bool>,
    /// The last message is the beginning of the answer.
    continue_final_message: Option<bool>,
    reasoning_format: Option<ReasoningFormat>,
    #[serde(rename = "modalities")]
    _modalities: Option<Vec<Modality>>,
    /// Not supported.
    #[schema(value_type = Option<Object>)]
    audio: Option<Value>,
    /// Taken, without effect.
    #[serde(rename = "metadata")]
    _metadata: Option<Object>,
    /// Nothing is stored, as `warnings` say.
    #[serde(rename = "store")]
    _store: Option<bool>,
    /// There is one tier; another one is named in `warnings`.
    service_tier: Option<String>,
    /// What the answer is expected to be, `{"type": "content", "content": ...}`: tokens are drafted
    /// from it.
    prediction: Option<Object>,
    /// A variable for the chat template.
    verbosity: Option<String>,
    /// Taken; what is cached is found by itself.
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
}

/// Members of a chat completion alone that this server has nothing for, and what a warning says of
/// them.
const UNUSED_OF_CHATS: [(&str, &str); 2] =
    [("store", "chat completions are not stored"), ("web_search_options", "nothing is searched")];

/// Members of a chat completion alone that are not supported.
const REFUSED: [Unsupported; 6] = [
    ("chat_template", is_off),
    ("documents", is_off),
    ("echo", is_off),
    ("best_of", is_one),
    ("return_token_ids", is_off),
    ("return_tokens_as_token_ids", is_off),
];

described! {
    /// What `tool_choice` was before.
    value OldChoice as "ChatFunctionChoice" = OldMode | Function;
    /// Whether functions are called.
    name OldMode as "ChatFunctionMode" = ["none", "auto"];
}

/// Where reasoning stands: apart from the content, in it (`none`, `raw`), or nowhere (`hidden`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ChatReasoningFormat)]
#[serde(rename_all = "kebab-case")]
enum ReasoningFormat {
    #[default]
    Auto,
    Deepseek,
    DeepseekLegacy,
    #[serde(alias = "text_parsed")]
    Parsed,
    None,
    Raw,
    Hidden,
}

/// What an answer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = ChatModality)]
#[serde(rename_all = "lowercase")]
enum Modality {
    Text,
}

/// A chat completion as asked for.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub request: ChatRequest,
    /// What the answer is held to, and by which member.
    constraint: Option<ConstraintField>,
    pub options: RequestOptions,
    /// How many answers there are.
    choices: usize,
    stream: bool,
    style: ChatStyle,
    custom: CustomTools,
    /// What the request asks for and does not get.
    warnings: Warnings,
}

impl ChatCall {
    /// What `error` means to the client.
    pub fn error(&self, error: ApiError) -> HttpError {
        ConstraintField::error(self.constraint.as_ref(), error, "messages")
    }
}

/// Reads and prepares a request.
fn prepare(service: &Service, body: &Value) -> Result<Reply<ChatAnswer>, HttpError> {
    let call = read(body)?;
    let prompt = service.for_options(&call.options).prepare_chat(&call.request);
    let prompt = prompt.map_err(|error| call.error(error))?;
    let ChatCall { options, choices, stream, style, custom, mut warnings, .. } = call;
    warnings.extend(prompt.warnings());
    let heading = Heading::new("chatcmpl-", &service.info().name);
    Ok(Reply::Generate(Box::new(Generation {
        prompts: vec![prompt],
        per_prompt: choices,
        options,
        id: heading.id.clone(),
        answer: ChatAnswer::new(heading, choices, style, custom, warnings),
        delivery: Delivery::of(stream),
    })))
}

/// Reads the body of a request.
pub(crate) fn read(body: &Value) -> Result<ChatCall, HttpError> {
    let ChatCompletionRequest { mut chat, thinking, options, constraint, sampling } =
        wire::read(body)?;
    if chat.audio.is_some() {
        return Err(HttpError::member("audio", "is not supported"));
    }
    unsupported::refuse(body, &REFUSED)?;
    let functions = chat.functions.is_some();
    let (tools, mut custom, tool_choice) = tools(&chat)?;
    let mut warnings = std::mem::take(&mut custom.warnings);
    warn(&chat, body, &mut warnings);
    let constraint = constraint.field()?;
    let mut messages = messages::read(chat.messages.as_deref())?;
    let begun = prefill(&chat, &mut messages)?;
    let (prefill, prefill_reasoning) = begun.map(|last| (last.text(), last.reasoning)).unzip();
    let (prefill, prefill_reasoning) = (prefill.flatten(), prefill_reasoning.flatten());
    // A grammar says nothing about the rest of an answer that has begun.
    if let (Some(ConstraintField { field, .. }), Some(_)) = (&constraint, &prefill) {
        let problem = "cannot be given together with continue_final_message";
        return Err(HttpError::member(field, problem));
    }
    let mut kwargs = chat.chat_template_kwargs.take().unwrap_or_default();
    if let Some(verbosity) = chat.verbosity {
        kwargs.entry("verbosity").or_insert(verbosity.into());
    }
    let thinking = thinking.asked(kwargs)?;
    let format = chat.reasoning_format.unwrap_or_default();
    let telemetry = options.telemetry();
    let logprobs = logprobs::alternatives(chat.logprobs, chat.top_logprobs)?;
    let request = ChatRequest {
        messages,
        tools,
        tool_choice,
        parallel_calls: chat.parallel_tool_calls.unwrap_or(true) && !functions,
        reasoning_budget: thinking.budget,
        template_kwargs: thinking.kwargs,
        add_generation_prompt: prefill.is_some() || chat.add_generation_prompt.unwrap_or(true),
        prefill,
        prefill_reasoning,
        split_reasoning: !matches!(format, ReasoningFormat::None | ReasoningFormat::Raw),
        // Times and counts with every chunk need the number of its tokens.
        sampling: SamplingOptions {
            logprobs: logprobs.or(telemetry.counts_tokens().then_some(0)),
            ..sampling.0
        },
        grammar: constraint.as_ref().map(|constraint| constraint.source.clone()),
        ..ChatRequest::default()
    };
    let (choices, (stream, stream_usage)) = (options.choices()?, options.stream());
    let style = ChatStyle {
        logprobs: logprobs.is_some(),
        stream_usage,
        telemetry,
        functions,
        hides_reasoning: thinking.is_hidden || format == ReasoningFormat::Hidden,
    };
    let prediction = chat.prediction.as_ref().map(speculation::predicted).transpose()?;
    let options = RequestOptions { prediction, ..options.options()? };
    Ok(ChatCall { request, constraint, options, choices, stream, style, custom, warnings })
}

/// Warns of members that have no effect.
fn warn(chat: &ChatBody, body: &Value, warnings: &mut Warnings) {
    warnings.add_given(body, &UNUSED);
    warnings.add_given(body, &UNUSED_OF_CHATS);
    warnings.add_unused_of_vllm(body);
    warnings.add_tier(chat.service_tier.as_deref());
}

fn tools(chat: &ChatBody) -> Result<(Vec<Tool>, CustomTools, ToolChoice), HttpError> {
    let Some(functions) = &chat.functions else {
        let (mut tools, custom) = tools::read(chat.tools.as_deref().unwrap_or_default())?;
        let choice = match (chat.tool_choice.as_deref(), chat.function_call.as_deref()) {
            (None, old @ Some(_)) => tools::old_choice(old, &tools)?,
            (given, _) => tools::choice(given, &mut tools)?,
        };
        return Ok((tools, custom, choice));
    };
    if chat.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(HttpError::member("functions", "cannot be given together with tools"));
    }
    let tools = tools::functions(functions)?;
    let choice = tools::old_choice(chat.function_call.as_deref(), &tools)?;
    Ok((tools, CustomTools::default(), choice))
}

/// The last message, where it is the beginning of the answer.
fn prefill(chat: &ChatBody, messages: &mut Vec<Message>) -> Result<Option<Message>, HttpError> {
    const FIELD: &str = "continue_final_message";
    if chat.continue_final_message != Some(true) {
        return Ok(None);
    }
    let last = messages.pop().unwrap_or_default();
    let begins = last.role == Role::Assistant && last.calls.is_empty() && !messages.is_empty();
    if !begins || last.text().is_none() {
        return Err(HttpError::member(FIELD, "needs an assistant's text after other messages"));
    }
    Ok(Some(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use text::GrammarSource;

    fn call(extra: Value) -> Result<ChatCall, HttpError> {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        read(&body)
    }

    fn check_error(extra: Value, param: &str) {
        let error = call(extra.clone()).expect_err(&extra.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{extra}");
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    #[test]
    fn choices_of_tools_reach_the_request() {
        let choose = |choice: Value| {
            let call = call(json!({"tools": [tool("f")], "tool_choice": choice})).unwrap();
            assert_eq!(call.request.tools, [tool("f").into()]);
            call.request.tool_choice
        };
        assert_eq!(choose(Value::Null), ToolChoice::Auto);
        assert_eq!(choose(json!("none")), ToolChoice::None);
        assert_eq!(choose(json!("required")), ToolChoice::Required);
        assert_eq!(choose(tool("f")), ToolChoice::Named("f".into()));
        let one = call(json!({"tools": [tool("f")], "parallel_tool_calls": false})).unwrap();
        assert!(!one.request.parallel_calls);
    }

    #[test]
    fn functions_are_tools_that_are_called_one_at_a_time() {
        let old = json!({"functions": [{"name": "f"}], "function_call": {"name": "f"}});
        let call = call(old).unwrap();
        assert!(call.style.functions && !call.request.parallel_calls);
        assert_eq!(call.request.tools, [tool("f").into()]);
        assert_eq!(call.request.tool_choice, ToolChoice::Named("f".into()));
        check_error(json!({"functions": [{"name": "f"}], "tools": [tool("f")]}), "functions");
        check_error(json!({"functions": [{}]}), "functions[0].name");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check_error(json!({"tool_choice": "required"}), "tool_choice");
        check_error(
            json!({"tools": [tool("f")], "tool_choice": tool("g")}),
            "tool_choice.function.name",
        );
        check_error(json!({"tools": ["x"]}), "tools[0]");
        check_error(json!({"top_logprobs": 2}), "top_logprobs");
        check_error(json!({"n": 0}), "n");
        check_error(json!({"logprobs": 3}), "logprobs");
        check_error(json!({"audio": {"voice": "x"}}), "audio");
        check_error(json!({"modalities": ["text", "audio"]}), "modalities[1]");
    }

    #[test]
    fn logprobs_carry_their_alternatives() {
        let read = |extra| call(extra).unwrap().request.sampling.logprobs;
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 4})), Some(4));
        assert_eq!(read(json!({"logprobs": true})), Some(0));
        assert_eq!(read(json!({"logprobs": false, "top_logprobs": 0})), None);
    }

    #[test]
    fn forms_reach_the_request_beside_tools_and_forced_calls() {
        let form = json!({"type": "json_object"});
        let constraint = call(json!({"response_format": form})).unwrap();
        assert_eq!(constraint.request.grammar, Some(GrammarSource::JsonObject));
        let mut both = json!({"response_format": form, "tools": [tool("f")]});
        for choice in ["auto", "none", "required"] {
            both["tool_choice"] = choice.into();
            let request = call(both.clone()).unwrap().request;
            assert_eq!(request.grammar, Some(GrammarSource::JsonObject), "{choice}");
        }
    }

    #[test]
    fn final_messages_are_continued() {
        let messages = json!([
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"}]);
        let body = json!({"messages": messages, "continue_final_message": true,
            "add_generation_prompt": false});
        let request = call(body.clone()).unwrap().request;
        assert_eq!((request.messages.len(), request.prefill.as_deref()), (1, Some("Well,")));
        assert!(request.add_generation_prompt);
        let mut reasoned = body.clone();
        reasoned["messages"][1] =
            json!({"role": "assistant", "content": "", "reasoning_content": "So"});
        let request = call(reasoned).unwrap().request;
        let begun = (request.prefill.as_deref(), request.prefill_reasoning.as_deref());
        assert_eq!(begun, (Some(""), Some("So")));
        let mut constraint = body;
        constraint["guided_regex"] = "a".into();
        check_error(constraint, "guided_regex");
        check_error(json!({"continue_final_message": true}), "continue_final_message");
    }

    #[test]
    fn a_prediction_reaches_the_request() {
        let prediction =
            |content: Value| json!({"prediction": {"type": "content", "content": content}});
        let options = call(prediction("x".into())).unwrap().options;
        assert_eq!(options.prediction.as_deref(), Some("x"));
        check_error(prediction(json!(3)), "prediction.content");
        check_error(json!({"speculative.n_max": -2}), "speculative.n_max");
    }

    #[test]
    fn members_without_effect_are_taken() {
        let ignored = json!({"metadata": {"a": "b"}, "store": true, "service_tier": "auto",
            "verbosity": "low",
            "prompt_cache_key": "k", "safety_identifier": "s", "modalities": ["text"],
            "web_search_options": {}, "stream_options": {"include_obfuscation": true}});
        assert!(call(ignored).is_ok());
    }
}
