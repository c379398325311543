//! The request of `POST /v1/chat/completions`.

use crate::fault::Fault;
use crate::fields::{Fields, wrong};
use crate::openai::{messages, sampling};
use api::{ChatRequest, SamplingOptions, Terms};
use serde_json::{Map, Value};

/// A chat completion as asked for.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub request: ChatRequest,
    pub terms: Terms,
    /// Answers wanted.
    pub choices: usize,
    pub stream: bool,
    /// End a stream with the usage.
    pub stream_usage: bool,
}

/// Reads the body of a request.
pub(crate) fn read(body: &Value) -> Result<ChatCall, Fault> {
    let fields = Fields::of_body(body)?;
    let (stream, stream_usage) = sampling::stream(&fields)?;
    let request = ChatRequest {
        messages: messages::read(&fields)?,
        tools: tools(&fields)?,
        template_kwargs: template_kwargs(&fields)?,
        add_generation_prompt: fields.flag("add_generation_prompt")?.unwrap_or(true),
        split_reasoning: split_reasoning(&fields)?,
        sampling: SamplingOptions { logprobs: logprobs(&fields)?, ..sampling::read(&fields)? },
        grammar: None,
    };
    let (terms, choices) = (sampling::terms(&fields)?, sampling::choices(&fields)?);
    Ok(ChatCall { request, terms, choices, stream, stream_usage })
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, Fault> {
    let top = fields.count("top_logprobs")?;
    match (fields.flag("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, Some(1..)) => {
            Err(Fault::invalid("top_logprobs", "top_logprobs needs logprobs to be true"))
        }
        (false, _) => Ok(None),
    }
}

/// The tools, unless `tool_choice` forbids them. A choice that would have to be forced is refused.
fn tools(fields: &Fields<'_>) -> Result<Vec<Value>, Fault> {
    if fields.array("functions")?.is_some_and(|functions| !functions.is_empty()) {
        return Err(Fault::invalid("functions", "functions is not supported; use tools"));
    }
    let tools = fields.array("tools")?.unwrap_or_default();
    for (at, tool) in tools.iter().enumerate() {
        Fields::of(tool, &format!("tools[{at}]"))?;
    }
    match fields.value("tool_choice") {
        None => Ok(tools.to_vec()),
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => Ok(Vec::new()),
            "auto" => Ok(tools.to_vec()),
            other => {
                let message = format!("tool_choice \"{other}\" is not supported");
                Err(Fault::invalid("tool_choice", message))
            }
        },
        Some(Value::Object(_)) => {
            Err(Fault::invalid("tool_choice", "a forced tool_choice is not supported"))
        }
        Some(other) => Err(wrong("tool_choice", "a string or an object", other)),
    }
}

/// `chat_template_kwargs`, with the members that stand beside it in other servers' requests.
fn template_kwargs(fields: &Fields<'_>) -> Result<Map<String, Value>, Fault> {
    let given = fields.fields("chat_template_kwargs")?;
    let mut kwargs = given.map(|given| given.object().clone()).unwrap_or_default();
    let mut add = |name: &str, value: Value| {
        kwargs.entry(name).or_insert(value);
    };
    if let Some(on) = fields.flag("enable_thinking")? {
        add("enable_thinking", on.into());
    }
    if let Some(effort) = fields.text("reasoning_effort")? {
        add("reasoning_effort", effort.into());
        if effort == "none" {
            add("enable_thinking", false.into());
        }
    }
    Ok(kwargs)
}

fn split_reasoning(fields: &Fields<'_>) -> Result<bool, Fault> {
    Ok(fields.text("reasoning_format")?.unwrap_or("auto") != "none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(extra: Value) -> Result<ChatCall, Fault> {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        read(&body)
    }

    fn check_fault(extra: Value, param: &str) {
        let fault = call(extra.clone()).expect_err(&extra.to_string());
        assert_eq!(fault.body()["error"]["param"], param, "{extra}");
    }

    #[test]
    fn thinking_switches_reach_the_template() {
        let kwargs = |extra| Value::Object(call(extra).unwrap().request.template_kwargs);
        assert_eq!(kwargs(json!({"enable_thinking": false})), json!({"enable_thinking": false}));
        assert_eq!(
            kwargs(json!({"chat_template_kwargs": {"enable_thinking": true, "x": 1},
                          "enable_thinking": false})),
            json!({"enable_thinking": true, "x": 1}),
        );
        assert_eq!(
            kwargs(json!({"reasoning_effort": "none"})),
            json!({"reasoning_effort": "none", "enable_thinking": false}),
        );
    }

    #[test]
    fn tool_choice_none_removes_the_tools() {
        let tools =
            |choice| call(json!({"tools": [{"type": "function"}], "tool_choice": choice})).unwrap();
        assert_eq!(tools("none").request.tools.len(), 0);
        assert_eq!(tools("auto").request.tools.len(), 1);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        check_fault(json!({"tool_choice": "required"}), "tool_choice");
        check_fault(json!({"tool_choice": {"type": "function"}}), "tool_choice");
        check_fault(json!({"tools": ["x"]}), "tools[0]");
        check_fault(json!({"functions": [{}]}), "functions");
        check_fault(json!({"top_logprobs": 2}), "top_logprobs");
        check_fault(json!({"n": 0}), "n");
        check_fault(json!({"n": 129}), "n");
        check_fault(json!({"logprobs": 3}), "logprobs");
    }

    #[test]
    fn logprobs_carry_their_alternatives() {
        let read = |extra| call(extra).unwrap().request.sampling.logprobs;
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 4})), Some(4));
        assert_eq!(read(json!({"logprobs": true})), Some(0));
        assert_eq!(read(json!({"logprobs": false, "top_logprobs": 0})), None);
    }
}
