//! Chat messages: from the forms that OpenAI's API allows to the one that templates read.
//!
//! Content parts are joined into a string, and the arguments of earlier tool calls, which travel
//! as JSON text, become objects; text that is no JSON stays text, since a model may have written
//! it and the conversation must go on. Members that this module does not know reach the template.

use crate::http_error::HttpError;
use crate::wire;
use api::arguments;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Most messages of one conversation.
const MAX_MESSAGES: usize = 100_000;

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatMessage)]
pub(crate) struct ChatMessage {
    /// `system`, `user`, `assistant`, `tool`, or what else the model's template knows; `developer`
    /// is `system`, and `function` is `tool`.
    #[schema(value_type = String)]
    role: Option<String>,
    /// Only assistants that call tools or reason may go without.
    #[schema(value_type = Option<Content>)]
    content: Option<Value>,
    #[allow(dead_code, reason = "only its type is checked")]
    name: Option<String>,
    tool_calls: Option<Vec<PastCall>>,
    function_call: Option<PastFunction>,
    #[allow(dead_code, reason = "only its type is checked")]
    tool_call_id: Option<String>,
    /// What the assistant thought.
    reasoning_content: Option<String>,
    /// As `reasoning_content`.
    reasoning: Option<String>,
    refusal: Option<String>,
    /// Not supported.
    #[schema(value_type = Option<Object>)]
    audio: Option<Value>,
}

/// A text, or parts of one.
#[derive(Debug, ToSchema)]
#[schema(as = ChatContent)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is read by hand")]
enum Content {
    Text(String),
    Parts(Vec<ChatContentItem>),
}

#[derive(Debug, ToSchema)]
#[schema(as = ChatContentItem)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is read by hand")]
enum ChatContentItem {
    Text(String),
    Part(ChatPart),
}

/// A part of a message; there are no images, audio or files.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatContentPart)]
struct ChatPart {
    /// `text` (by default), `input_text`, `output_text` or `refusal`.
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    /// The text of a refusal.
    refusal: Option<String>,
}

/// A call that the assistant made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatPastCall)]
struct PastCall {
    id: Option<String>,
    #[serde(rename = "type")]
    #[allow(dead_code, reason = "only its type is checked")]
    kind: Option<String>,
    #[schema(value_type = PastFunction)]
    function: Option<PastFunction>,
}

/// What was called.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatPastFunction)]
struct PastFunction {
    #[schema(value_type = String)]
    name: Option<String>,
    /// The text of an object, or the object.
    #[schema(value_type = Option<PastArguments>)]
    arguments: Option<Value>,
}

#[derive(Debug, ToSchema)]
#[schema(as = ChatArguments)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what is read by hand")]
enum PastArguments {
    Text(String),
    #[schema(value_type = Object)]
    Object(Map<String, Value>),
}

/// The messages of a conversation, ready for the template.
pub(crate) fn read(messages: Option<&[Value]>) -> Result<Vec<Value>, HttpError> {
    let messages = messages.ok_or_else(|| wire::missing("messages"))?;
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        let message = format!("messages must hold 1 to {MAX_MESSAGES} messages");
        return Err(HttpError::invalid("messages", message));
    }
    messages
        .iter()
        .enumerate()
        .map(|(at, message)| one(message, &format!("messages[{at}]")))
        .collect()
}

fn one(given: &Value, path: &str) -> Result<Value, HttpError> {
    let message: ChatMessage = wire::part(given, path)?;
    if message.audio.is_some() {
        let path = format!("{path}.audio");
        return Err(HttpError::invalid(&path, format!("{path} is not supported")));
    }
    let role = role(&message, path)?;
    let content = content(&message, role, path)?;
    let calls = calls(&message, given, path)?;
    let mut out = given.as_object().cloned().unwrap_or_default();
    for replaced in ["tool_calls", "function_call", "reasoning"] {
        out.shift_remove(replaced);
    }
    out.insert("role".into(), role.into());
    out.insert("content".into(), content);
    if let Some(thought) = message.reasoning_content.or(message.reasoning) {
        out.insert("reasoning_content".into(), thought.into());
    }
    if !calls.is_empty() {
        out.insert("tool_calls".into(), calls.into());
    }
    Ok(Value::Object(out))
}

/// The role in the words of templates.
fn role<'a>(message: &'a ChatMessage, path: &str) -> Result<&'a str, HttpError> {
    match message.role.as_deref() {
        None => Err(wire::missing(&format!("{path}.role"))),
        Some("developer") => Ok("system"),
        Some("function") => Ok("tool"),
        Some(role) => Ok(role),
    }
}

fn content(message: &ChatMessage, role: &str, path: &str) -> Result<Value, HttpError> {
    let path = format!("{path}.content");
    match &message.content {
        Some(Value::String(text)) => Ok(text.clone().into()),
        Some(Value::Array(parts)) => joined(parts, &path).map(Value::String),
        Some(_) => {
            let message = format!("{path} must be a string or an array of text parts");
            Err(HttpError::invalid(path, message))
        }
        None if role != "assistant" => Err(wire::missing(&path)),
        None if message.calls_something() => Ok(Value::Null),
        None => match (&message.refusal, &message.reasoning_content, &message.reasoning) {
            (Some(refusal), ..) => Ok(refusal.clone().into()),
            (None, None, None) => Err(wire::missing(&path)),
            _ => Ok("".into()),
        },
    }
}

impl ChatMessage {
    fn calls_something(&self) -> bool {
        self.tool_calls.is_some() || self.function_call.is_some()
    }
}

/// The texts of `parts`, one line each where there are several.
fn joined(parts: &[Value], path: &str) -> Result<String, HttpError> {
    let part = |(at, part): (usize, &Value)| text_part(part, &format!("{path}[{at}]"));
    let texts: Result<Vec<String>, HttpError> = parts.iter().enumerate().map(part).collect();
    Ok(texts?.join("\n"))
}

fn text_part(value: &Value, path: &str) -> Result<String, HttpError> {
    if let Value::String(text) = value {
        return Ok(text.clone());
    }
    let part: ChatPart = wire::part(value, path)?;
    let (name, text) = match part.kind.as_deref().unwrap_or("text") {
        "text" | "input_text" | "output_text" => ("text", part.text),
        "refusal" => ("refusal", part.refusal),
        other => {
            let path = format!("{path}.type");
            let message = format!("{path}: parts of type {other} are not supported");
            return Err(HttpError::invalid(path, message));
        }
    };
    text.ok_or_else(|| wire::missing(&format!("{path}.{name}")))
}

/// The calls of an assistant with their arguments as objects, otherwise as they were `given`.
fn calls(message: &ChatMessage, given: &Value, path: &str) -> Result<Vec<Value>, HttpError> {
    let path_of = |at: usize| format!("{path}.tool_calls[{at}]");
    let mut calls = Vec::new();
    for (at, call) in message.tool_calls.iter().flatten().enumerate() {
        let path = format!("{}.function", path_of(at));
        let function = call.function.as_ref().ok_or_else(|| wire::missing(&path))?;
        let mut out = given["tool_calls"][at].clone();
        out["type"] = "function".into();
        out["function"] = called(function, &out["function"], &path)?;
        if call.id.is_none() {
            out.as_object_mut().map(|members| members.shift_remove("id"));
        }
        calls.push(out);
    }
    if let Some(function) = &message.function_call {
        let path = format!("{path}.function_call");
        let function = called(function, &given["function_call"], &path)?;
        calls.push(json!({ "type": "function", "function": function }));
    }
    Ok(calls)
}

fn called(function: &PastFunction, given: &Value, path: &str) -> Result<Value, HttpError> {
    if function.name.is_none() {
        return Err(wire::missing(&format!("{path}.name")));
    }
    let arguments = match &function.arguments {
        None => Map::new().into(),
        Some(Value::String(text)) => arguments(text),
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => {
            let path = format!("{path}.arguments");
            let message = format!("{path} must be the text of an object, or an object");
            return Err(HttpError::invalid(path, message));
        }
    };
    let mut out = given.clone();
    out["arguments"] = arguments;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(messages: Value) -> Result<Vec<Value>, HttpError> {
        read(messages.as_array().map(Vec::as_slice))
    }

    fn check(message: Value, expected: Value) {
        assert_eq!(messages(json!([message])).unwrap(), [expected]);
    }

    fn check_error(all: Value, param: &str) {
        let error = messages(all.clone()).expect_err(&all.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{all}");
    }

    #[test]
    fn text_parts_become_one_string() {
        let part = |text: &str| json!({"type": "text", "text": text});
        check(
            json!({"role": "user", "content": [part("a"), part("b"), "c"], "name": "n"}),
            json!({"role": "user", "content": "a\nb\nc", "name": "n"}),
        );
        check(json!({"role": "user", "content": []}), json!({"role": "user", "content": ""}));
        check(
            json!({"role": "tool", "content": [part("a"), part("b")], "tool_call_id": "1"}),
            json!({"role": "tool", "content": "a\nb", "tool_call_id": "1"}),
        );
    }

    fn call(arguments: Value) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    }

    #[test]
    fn tool_arguments_become_objects_and_broken_ones_stay_text() {
        check(call(json!(r#"{"x": 1}"#)), call(json!({"x": 1})));
        check(call(json!("")), call(json!({})));
        check(call(json!(null)), call(json!({})));
        check(call(json!("{broken")), call(json!("{broken")));
        check(call(json!({"x": 1})), call(json!({"x": 1})));
    }

    #[test]
    fn absent_tool_calls_leave_no_trace() {
        let plain = json!({"role": "assistant", "content": "hi"});
        check(json!({"role": "assistant", "content": "hi", "tool_calls": null}), plain.clone());
        check(json!({"role": "assistant", "content": "hi", "tool_calls": []}), plain);
    }

    #[test]
    fn old_and_foreign_words_become_those_of_templates() {
        check(
            json!({"role": "developer", "content": "d"}),
            json!({"role": "system", "content": "d"}),
        );
        check(
            json!({"role": "function", "name": "f", "content": "r"}),
            json!({"role": "tool", "name": "f", "content": "r"}),
        );
        check(
            json!({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": {}}}]}),
        );
        let thought = json!({"role": "assistant", "content": "", "reasoning_content": "r"});
        check(json!({"role": "assistant", "content": "", "reasoning": "r"}), thought.clone());
        check(json!({"role": "assistant", "reasoning_content": "r", "content": null}), thought);
    }

    #[test]
    fn faults_name_the_message_and_member() {
        check_error(json!([]), "messages");
        check_error(json!("hi"), "messages");
        check_error(json!([1]), "messages[0]");
        check_error(json!([{"content": "x"}]), "messages[0].role");
        check_error(json!([{"role": "user"}]), "messages[0].content");
        check_error(json!([{"role": "assistant"}]), "messages[0].content");
        check_error(json!([{"role": "user", "content": 3}]), "messages[0].content");
        let image = json!([{"type": "text", "text": "a"}, {"type": "image_url"}]);
        check_error(json!([{"role": "user", "content": image}]), "messages[0].content[1].type");
        let empty = json!([{"type": "text"}]);
        check_error(json!([{"role": "user", "content": empty}]), "messages[0].content[0].text");
        check_error(
            json!([{"role": "assistant", "tool_calls": [{"function": 1}]}]),
            "messages[0].tool_calls[0].function",
        );
        check_error(
            json!([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]),
            "messages[0].tool_calls[0].function.name",
        );
        check_error(json!([call(json!(3))]), "messages[0].tool_calls[0].function.arguments");
        let audio = json!([{"role": "assistant", "content": "a", "audio": {"id": "x"}}]);
        check_error(audio, "messages[0].audio");
    }
}
