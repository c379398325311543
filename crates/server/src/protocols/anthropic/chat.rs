//! The request of `POST /v1/messages`, and of the count of its tokens.

use crate::generate::flow;
use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::anthropic::edits::ContextEdits;
use crate::protocols::anthropic::request::{
    Conversation, MessageRequest, MessageSettings, OutputFormat, OutputFormatKind, ThinkingDisplay,
    ThinkingKind,
};
use crate::protocols::anthropic::response::ContextManagement;
use crate::protocols::anthropic::{messages, tools};
use crate::protocols::warnings::Warnings;
use api::{
    ApiError, ChatRequest, Message, Prepared, RequestOptions, SamplingOptions, Service, ToolChoice,
};
use serde_json::{Map, Value, json};
use text::GrammarSource;

/// Highest temperature; Anthropic's own limit is 1.
const MAX_TEMPERATURE: f32 = 2.0;
/// Most texts that end an answer.
const MAX_STOPS: usize = 16;
/// What the ids of calls begin with.
const CALL_PREFIX: &str = "toolu_";

/// Members of a request that this server has nothing for, and what a warning says of them.
const UNUSED: [(&str, &str); 7] = [
    ("billing_policy", "nothing is billed"),
    ("container", "there are no containers"),
    ("diagnostics", "the reason of a cache miss is not told"),
    ("fallback_credit_token", "nothing is billed"),
    ("fallbacks", "no other model takes over"),
    ("inference_geo", "the answer is computed where the server is"),
    ("mcp_servers", "the server calls no tools by itself"),
];

/// A request for a message.
#[derive(Debug)]
pub(crate) struct MessageCall {
    pub request: ChatRequest,
    pub options: RequestOptions,
    pub stream: bool,
    /// The client marked what it wants to be cached.
    pub caches: bool,
    /// Thinking blocks have no text.
    pub omits_thinking: bool,
    pub edits: ContextEdits,
    pub warnings: Warnings,
}

/// Reads the body of a request for a message.
pub(crate) fn read(body: &Value) -> Result<MessageCall, HttpError> {
    refuse(body)?;
    let MessageRequest { conversation, settings } = wire::read(body)?;
    let call = of(conversation, body)?;
    let request = ChatRequest { sampling: sampling(&settings)?, ..call.request };
    let user = settings.metadata.and_then(|metadata| metadata.user_id);
    let options = RequestOptions { user, ..RequestOptions::default() };
    let stream = settings.stream.unwrap_or(false);
    Ok(MessageCall { request, options, stream, caches: marks_cache(body), ..call })
}

/// Reads the body of a request for the count of its tokens, which has no settings of an answer.
pub(crate) fn counted(body: &Value) -> Result<MessageCall, HttpError> {
    refuse(body)?;
    of(wire::read(body)?, body)
}

/// The request for the message that follows `conversation`, which `body` holds.
fn of(mut conversation: Conversation, body: &Value) -> Result<MessageCall, HttpError> {
    let edits = conversation.context_management.take().unwrap_or_default();
    let display = conversation.thinking.as_ref().and_then(|thinking| thinking.display);
    let mut warnings = Warnings::default();
    warn(body, &mut warnings);
    Ok(MessageCall {
        request: prompt(conversation, &mut warnings)?,
        options: RequestOptions::default(),
        stream: false,
        caches: false,
        omits_thinking: display == Some(ThinkingDisplay::Omitted),
        edits,
        warnings,
    })
}

/// Refuses members that ask for something other than the answer to a conversation.
fn refuse(body: &Value) -> Result<(), HttpError> {
    let refusals = [
        ("compaction", "is not supported: the server does not summarize in this protocol"),
        ("thread", "is not supported: the server keeps no conversations in this protocol"),
    ];
    match refusals.into_iter().find(|(name, _)| !body[name].is_null()) {
        Some((name, why)) => Err(HttpError::member(name, why)),
        None => Ok(()),
    }
}

fn warn(body: &Value, warnings: &mut Warnings) {
    warnings.add_given(body, &UNUSED);
    for (object, name, what) in [
        ("thinking", "block_binding", "thinking blocks are not checked"),
        ("output_config", "task_budget", "there is no budget of a task"),
    ] {
        warnings.add_given(&body[object], &[(name, what)]);
    }
    if body.get("speed").is_some_and(|speed| !speed.is_null() && speed != "standard") {
        warnings.add("speed", "there is one");
    }
}

impl MessageCall {
    /// Removes what the request's edits name from its messages, and prepares the prompt. Returns
    /// what was removed, where the request has edits.
    ///
    /// # Errors
    /// If an edit cannot be applied. The inner result is that of [`Service::prepare_chat`].
    pub fn prepare(
        &mut self,
        service: &Service,
    ) -> Result<(Result<Prepared, ApiError>, Option<ContextManagement>), HttpError> {
        let service = service.for_options(&self.options);
        let Self { request, edits, warnings, .. } = self;
        let mut messages = std::mem::take(&mut request.messages);
        let applied = edits.apply(&mut messages, warnings, |messages: &[Message]| {
            let request = ChatRequest { messages: messages.to_vec(), ..request.clone() };
            let counted = flow::counted(service.prepare_chat(&request));
            counted.map_err(|error| HttpError::of(error, "messages"))
        })?;
        request.messages = messages;
        let applied = edits.edits.is_some().then_some(applied);
        let prepared = service.prepare_chat(request);
        if let Ok(prepared) = &prepared {
            self.warnings.extend(prepared.warnings());
        }
        Ok((prepared, applied))
    }
}

/// The request for the message that follows `conversation`.
fn prompt(conversation: Conversation, warnings: &mut Warnings) -> Result<ChatRequest, HttpError> {
    let messages = messages::read(&conversation, warnings)?;
    let given = conversation.tools.as_deref().unwrap_or_default();
    let tools = tools::read(given, &messages.tool_changes, warnings)?;
    let choice = conversation.tool_choice.as_ref();
    let tool_choice =
        choice.map_or(Ok(ToolChoice::Auto), |choice| tools::choice(choice, &tools))?;
    let one_call = choice.and_then(|choice| choice.disable_parallel_tool_use) == Some(true);
    let template_kwargs = template_kwargs(&conversation, messages.prefill.is_some())?;
    let reasoning_budget = reasoning_budget(&conversation)?;
    let config = conversation.output_config.and_then(|config| config.format);
    let grammar = config.or(conversation.output_format).map(grammar).transpose()?;
    Ok(ChatRequest {
        messages: messages.list,
        prefill: messages.prefill,
        tools,
        tool_choice,
        parallel_calls: !one_call,
        call_prefix: CALL_PREFIX,
        reasoning_budget,
        template_kwargs,
        grammar,
        ..ChatRequest::default()
    })
}

/// The grammar that the answer must match.
fn grammar(format: OutputFormat) -> Result<GrammarSource, HttpError> {
    let OutputFormatKind::JsonSchema = format.kind;
    if !format.schema.is_object() {
        return Err(HttpError::member("output_config.format.schema", "must be an object"));
    }
    Ok(GrammarSource::LooseSchema(format.schema))
}

/// The switches of thinking that templates know. A begun answer does not think any more.
fn template_kwargs(
    conversation: &Conversation,
    begun: bool,
) -> Result<Map<String, Value>, HttpError> {
    let mut kwargs = Map::new();
    let thinking = conversation.thinking.as_ref().map(|thinking| thinking.kind);
    if begun && thinking == Some(ThinkingKind::Enabled) {
        let message = "thinking cannot be enabled where the last message begins the answer";
        return Err(HttpError::invalid("thinking", message));
    }
    if begun || thinking.is_some() {
        let off = [Some(ThinkingKind::Disabled), Some(ThinkingKind::BetweenTools)];
        let on = !begun && !off.contains(&thinking);
        kwargs.insert("enable_thinking".into(), on.into());
    }
    let effort = conversation.output_config.as_ref().and_then(|config| config.effort);
    if let Some(effort) = effort {
        kwargs.insert("reasoning_effort".into(), json!(effort));
    }
    Ok(kwargs)
}

fn reasoning_budget(conversation: &Conversation) -> Result<Option<usize>, HttpError> {
    let Some(thinking) = &conversation.thinking else { return Ok(None) };
    match (thinking.kind, thinking.budget_tokens) {
        (_, Some(0)) => Err(HttpError::member("thinking.budget_tokens", "must be at least 1")),
        (ThinkingKind::Disabled | ThinkingKind::BetweenTools, _) => Ok(None),
        (_, budget) => Ok(budget),
    }
}

fn sampling(settings: &MessageSettings) -> Result<SamplingOptions, HttpError> {
    let temperature = settings.temperature;
    if let Some(hot) = temperature.filter(|value| !(0.0..=MAX_TEMPERATURE).contains(value)) {
        let message = format!("temperature must be between 0 and {MAX_TEMPERATURE}, not {hot}");
        return Err(HttpError::invalid("temperature", message));
    }
    let max_tokens = match settings.max_tokens {
        Some(most @ 1..) => most,
        Some(_) => return Err(HttpError::member("max_tokens", "must be at least 1")),
        None => return Err(wire::missing("max_tokens")),
    };
    let stop = settings.stop_sequences.iter().flatten().filter(|text| !text.is_empty());
    let stop: Vec<String> = stop.cloned().collect();
    if stop.len() > MAX_STOPS {
        let message = format!("stop_sequences holds {} texts; {MAX_STOPS} are allowed", stop.len());
        return Err(HttpError::invalid("stop_sequences", message));
    }
    Ok(SamplingOptions {
        temperature,
        top_p: settings.top_p,
        top_k: settings.top_k,
        max_tokens: Some(max_tokens),
        stop,
        ..SamplingOptions::default()
    })
}

/// Whether `cache_control` stands anywhere where it may.
fn marks_cache(body: &Value) -> bool {
    let marked = |value: &Value| !value["cache_control"].is_null();
    let any = |list: &Value, of: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|list| list.iter().any(of))
    };
    let block = |block: &Value| marked(block) || any(&block["content"], &marked);
    let message = |message: &Value| any(&message["content"], &block);
    marked(body)
        || any(&body["system"], &marked)
        || any(&body["tools"], &marked)
        || any(&body["messages"], &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(extra: Value) -> Result<MessageCall, HttpError> {
        let mut body = json!({"model": "any", "max_tokens": 9,
                              "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        read(&body)
    }

    fn check_error(extra: Value, param: &str) {
        let error = call(extra.clone()).expect_err(&extra.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{extra}");
    }

    #[test]
    fn sampling_and_terms_are_taken() {
        let read = call(json!({
            "temperature": 1.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["", "x", "\n"],
            "stream": true, "metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["x"],
            "context_management": {"edits": []}, "mcp_servers": [], "container": "c",
        }))
        .unwrap();
        let expected = SamplingOptions {
            temperature: Some(1.5),
            top_p: Some(0.9),
            top_k: Some(5),
            max_tokens: Some(9),
            stop: vec!["x".into(), "\n".into()],
            ..SamplingOptions::default()
        };
        assert_eq!(read.request.sampling, expected);
        assert_eq!((read.options.user.as_deref(), read.stream), (Some("u"), true));
        assert_eq!(read.request.call_prefix, "toolu_");
    }

    #[test]
    fn calls_are_parallel_unless_that_is_switched_off() {
        let parallel = |choice: Value| {
            let tools = json!([{"name": "f", "input_schema": {}}]);
            let call = call(json!({"tools": tools, "tool_choice": choice})).unwrap();
            call.request.parallel_calls
        };
        assert!(parallel(json!(null)) && parallel(json!({"type": "any"})));
        assert!(!parallel(json!({"type": "auto", "disable_parallel_tool_use": true})));
    }

    #[test]
    fn thinking_switches_reach_the_template_and_the_budget_the_model() {
        let read = |extra| {
            let request = call(extra).unwrap().request;
            (Value::Object(request.template_kwargs), request.reasoning_budget)
        };
        let switch = |on: bool| json!({"enable_thinking": on});
        assert_eq!(read(json!({})), (json!({}), None));
        let enabled = json!({"thinking": {"type": "enabled", "budget_tokens": 2048}});
        assert_eq!(read(enabled), (switch(true), Some(2048)));
        assert_eq!(read(json!({"thinking": {"type": "adaptive"}})), (switch(true), None));
        assert_eq!(read(json!({"thinking": {"type": "disabled"}})), (switch(false), None));
        assert_eq!(read(json!({"thinking": {"type": "between_tools"}})), (switch(false), None));
        let effort = json!({"output_config": {"effort": "xhigh"}});
        assert_eq!(read(effort), (json!({"reasoning_effort": "xhigh"}), None));
    }

    #[test]
    fn a_begun_answer_does_not_think() {
        let begun =
            json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]);
        let request = call(json!({"messages": begun})).unwrap().request;
        assert_eq!(request.prefill.as_deref(), Some("y"));
        assert_eq!(Value::Object(request.template_kwargs), json!({"enable_thinking": false}));
        check_error(json!({"messages": begun, "thinking": {"type": "enabled"}}), "thinking");
    }

    #[test]
    fn cache_control_counts_where_it_may_stand() {
        let mark = json!({"type": "ephemeral"});
        let block = json!({"type": "text", "text": "x", "cache_control": mark});
        let caches = |extra| call(extra).unwrap().caches;
        assert!(caches(json!({"cache_control": mark})));
        assert!(caches(json!({"system": [block]})));
        assert!(caches(json!({"messages": [{"role": "user", "content": [block]}]})));
        assert!(caches(
            json!({"tools": [{"name": "f", "input_schema": {}, "cache_control": mark}]})
        ));
        let schema = json!({"properties": {"cache_control": {"type": "string"}}});
        assert!(!caches(json!({"tools": [{"name": "f", "input_schema": schema}]})));
        assert!(!caches(json!({"cache_control": null})));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        check_error(json!({"max_tokens": null}), "max_tokens");
        check_error(json!({"max_tokens": 0}), "max_tokens");
        check_error(json!({"max_tokens": "9"}), "max_tokens");
        check_error(json!({"temperature": 2.1}), "temperature");
        check_error(json!({"temperature": -1}), "temperature");
        check_error(json!({"top_k": -1}), "top_k");
        check_error(json!({"stop_sequences": "x"}), "stop_sequences");
        check_error(json!({"stop_sequences": [3]}), "stop_sequences[0]");
        check_error(json!({"stop_sequences": vec!["x"; 17]}), "stop_sequences");
        check_error(json!({"metadata": {"user_id": 3}}), "metadata.user_id");
        check_error(json!({"thinking": {"type": "sometimes"}}), "thinking.type");
        check_error(
            json!({"thinking": {"type": "enabled", "budget_tokens": 0}}),
            "thinking.budget_tokens",
        );
        check_error(json!({"tool_choice": {"type": "some"}}), "tool_choice.type");
        check_error(json!({"tools": [{"name": 3}]}), "tools[0].name");
        check_error(json!({"tools": [{"name": "f", "input_schema": []}]}), "tools[0].input_schema");
        let format = json!({"type": "json_schema", "schema": 1});
        check_error(json!({"output_config": {"format": format}}), "output_config.format.schema");
    }

    #[test]
    fn members_that_have_no_effect_are_named() {
        let warned = |extra: Value| !call(extra).unwrap().warnings.is_empty();
        for (name, value) in [
            ("container", json!("c")),
            ("mcp_servers", json!([{"type": "url"}])),
            ("inference_geo", json!("eu")),
            ("diagnostics", json!({"previous_message_id": null})),
            ("fallbacks", json!([{"model": "m"}])),
            ("speed", json!("fast")),
            ("output_config", json!({"task_budget": {"type": "tokens", "total": 9}})),
            ("thinking", json!({"type": "adaptive", "block_binding": {"x": 1}})),
        ] {
            assert!(warned(json!({(name): value})), "{name}");
        }
        assert!(!warned(json!({"service_tier": "auto", "speed": "standard", "mcp_servers": []})));
        check_error(json!({"compaction": {"type": "summarize"}}), "compaction");
        check_error(json!({"thread": {"type": "create"}}), "thread");
    }

    #[test]
    fn formats_of_either_place_hold_the_answer() {
        let format = json!({"type": "json_schema", "schema": {"type": "object"}});
        for body in [json!({"output_config": {"format": format}}), json!({"output_format": format})]
        {
            let expected = GrammarSource::LooseSchema(json!({"type": "object"}));
            assert_eq!(call(body).unwrap().request.grammar, Some(expected));
        }
    }
}
