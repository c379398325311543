//! The request of `POST /v1/chat/completions`: from its body to what is computed.

use crate::generate::constraint::{self, ConstraintField};
use crate::generate::options::OptionsBody;
use crate::generate::sampling::body as sampling;
use crate::http::error::HttpError;
use crate::http::wire;
use crate::protocols::openai::chat_body::ChatBody;
use crate::protocols::openai::{messages, thinking, tools};
use api::{ChatRequest, Message, RequestOptions, Role, SamplingOptions, Tool, ToolChoice};
use serde_json::Value;

/// A chat completion as asked for.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub request: ChatRequest,
    /// What the answer is held to, and by which member.
    pub constraint: Option<ConstraintField>,
    pub options: RequestOptions,
    /// Answers wanted.
    pub choices: usize,
    pub stream: bool,
    /// End a stream with the usage.
    pub stream_usage: bool,
    /// Tell calls as `function_call`, as they were before there were tools.
    pub functions: bool,
}

/// Reads the body of a request.
pub(crate) fn read(body: &Value) -> Result<ChatCall, HttpError> {
    let (mut chat, options): (ChatBody, OptionsBody) = (wire::read(body)?, wire::read(body)?);
    chat.refuse_media()?;
    let functions = chat.functions.is_some();
    let (tools, tool_choice) = tools(&chat)?;
    let constraint = constraint::read(body)?;
    let mut messages = messages::read(chat.messages.as_deref())?;
    let prefill = prefill(&chat, &mut messages)?;
    refuse_contradictions(constraint.as_ref(), &tool_choice, prefill.as_ref())?;
    let thinking = thinking::read(body)?;
    let request = ChatRequest {
        messages,
        tools,
        tool_choice,
        parallel_calls: chat.parallel_tool_calls.unwrap_or(true) && !functions,
        reasoning_budget: thinking.budget,
        template_kwargs: thinking.kwargs(chat.chat_template_kwargs.take().unwrap_or_default()),
        add_generation_prompt: prefill.is_some() || chat.add_generation_prompt.unwrap_or(true),
        prefill,
        split_reasoning: chat.reasoning_format.as_deref() != Some("none"),
        sampling: SamplingOptions { logprobs: chat.logprobs()?, ..sampling::read(body)? },
        grammar: constraint.as_ref().map(|constraint| constraint.source.clone()),
        ..ChatRequest::default()
    };
    let (choices, (stream, stream_usage)) = (options.choices()?, options.stream());
    let options = options.options()?;
    Ok(ChatCall { request, constraint, options, choices, stream, stream_usage, functions })
}

fn tools(chat: &ChatBody) -> Result<(Vec<Tool>, ToolChoice), HttpError> {
    let Some(functions) = &chat.functions else {
        let mut tools = tools::read(chat.tools.as_deref().unwrap_or_default())?;
        let choice = tools::choice(chat.tool_choice.as_ref(), &mut tools)?;
        return Ok((tools, choice));
    };
    if chat.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(HttpError::invalid(
            "functions",
            "functions cannot be given together with tools",
        ));
    }
    let tools = tools::functions(functions)?;
    let choice = tools::old_choice(chat.function_call.as_ref(), &tools)?;
    Ok((tools, choice))
}

/// The beginning of the answer, where the last message is one.
fn prefill(chat: &ChatBody, messages: &mut Vec<Message>) -> Result<Option<String>, HttpError> {
    const FIELD: &str = "continue_final_message";
    if chat.continue_final_message != Some(true) {
        return Ok(None);
    }
    let last = messages.pop().unwrap_or_default();
    let begins = last.role == Role::Assistant && last.calls.is_empty() && !messages.is_empty();
    match last.text() {
        Some(text) if begins => Ok(Some(text)),
        _ => {
            let message = format!("{FIELD} needs an assistant's text behind other messages");
            Err(HttpError::invalid(FIELD, message))
        }
    }
}

/// An answer that is held to a form can neither be a call nor have begun already.
fn refuse_contradictions(
    constraint: Option<&ConstraintField>,
    choice: &ToolChoice,
    prefill: Option<&String>,
) -> Result<(), HttpError> {
    let Some(ConstraintField { field, .. }) = constraint else { return Ok(()) };
    let forced = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    let other = match (forced, prefill) {
        (true, _) => "a tool_choice that requires a call",
        (false, Some(_)) => "continue_final_message",
        (false, None) => return Ok(()),
    };
    Err(HttpError::invalid(*field, format!("{field} cannot be given together with {other}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::GrammarSource;
    use serde_json::json;

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
        assert!(call.functions && !call.request.parallel_calls);
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
    fn forms_reach_the_request_and_contradict_forced_calls() {
        let form = json!({"type": "json_object"});
        let constraint = call(json!({"response_format": form})).unwrap();
        assert_eq!(constraint.request.grammar, Some(GrammarSource::JsonObject));
        let mut both = json!({"response_format": form, "tools": [tool("f")]});
        assert!(call(both.clone()).is_ok());
        both["tool_choice"] = "required".into();
        check_error(both, "response_format");
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
        let mut constraint = body;
        constraint["guided_regex"] = "a".into();
        check_error(constraint, "guided_regex");
        check_error(json!({"continue_final_message": true}), "continue_final_message");
    }

    #[test]
    fn members_without_effect_are_taken() {
        let ignored = json!({"metadata": {"a": "b"}, "store": true, "service_tier": "auto",
            "prediction": {"type": "content", "content": "x"}, "verbosity": "low",
            "prompt_cache_key": "k", "safety_identifier": "s", "modalities": ["text"],
            "web_search_options": {}, "stream_options": {"include_obfuscation": true}});
        assert!(call(ignored).is_ok());
    }
}
