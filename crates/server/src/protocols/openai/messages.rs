//! Chat messages: from the forms that OpenAI's API allows to the one that templates read.
//!
//! Content parts are joined into a string, and the arguments of earlier tool calls, which travel
//! as JSON text, become objects; text that is no JSON stays text, since a model may have written
//! it and the conversation must continue. Members that this module does not know reach the
//! template.

use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use crate::http::wire;
use crate::protocols::attachments::{self, PartPlace};
use crate::protocols::openai::custom_tools::PastCustom;
use api::{Message, Part, Role, ToolCall, arguments};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use utoipa::ToSchema;

/// Most messages of one conversation.
const MAX_MESSAGES: usize = 100_000;

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `system`, `user`, `assistant`, `tool`, or what else the model's template knows; `developer`
    /// is `system`, and `function` is `tool`.
    #[schema(value_type = String)]
    role: Option<String>,
    /// Only assistants that call tools or reason may go without.
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<PastCall>>,
    function_call: Option<PastFunction>,
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

described! {
    /// A text, or parts of one.
    value Content as "ChatContent" = (String) | [ChatContentItem];
    name ChatContentItem = (String) | ChatPart;
    value PastArguments as "ChatArguments" = (String) | (Object);
}

/// A part of a message. Images, audio and files that are no text are refused in messages of
/// persons; in results of tools a note stands for them.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatContentPart)]
struct ChatPart {
    /// `text` (by default), `input_text`, `output_text`, `refusal` or `file`.
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    /// The text of a refusal.
    refusal: Option<String>,
    /// `file_data`, a data URL or base64, and `filename`.
    #[schema(value_type = Option<Object>)]
    file: Option<Value>,
}

/// A call that the assistant made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatPastCall)]
struct PastCall {
    id: Option<String>,
    #[serde(rename = "type")]
    _kind: Option<String>,
    /// Missing only where a custom tool was called.
    function: Option<PastFunction>,
    custom: Option<PastCustom>,
}

/// What was called.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatPastFunction)]
struct PastFunction {
    #[schema(value_type = String)]
    name: Option<String>,
    /// The text of an object, or the object.
    arguments: Option<PastArguments>,
}

/// Members of a message that have fields of their own.
const TYPED: [&str; 8] = [
    "role",
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function_call",
    "tool_call_id",
    "name",
];

/// The messages of a conversation.
pub(crate) fn read(messages: Option<&[Value]>) -> Result<Vec<Message>, HttpError> {
    let messages = messages.ok_or_else(|| wire::missing("messages"))?;
    if messages.is_empty() || messages.len() > MAX_MESSAGES {
        let problem = format!("must hold 1 to {MAX_MESSAGES} messages");
        return Err(HttpError::member("messages", problem));
    }
    let one = |(at, message)| one(message, &format!("messages[{at}]"));
    let mut messages: Vec<_> = messages.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    name_calls(&mut messages);
    Ok(messages)
}

/// Gives calls without an id one, and the results after them, in order, which have none either.
fn name_calls(messages: &mut [Message]) {
    let (mut made, mut waiting) = (0, VecDeque::new());
    for message in messages {
        if !message.calls.is_empty() {
            waiting.clear();
        }
        for call in message.calls.iter_mut().filter(|call| call.id.is_none()) {
            let id = format!("call_{made}");
            made += 1;
            waiting.push_back(id.clone());
            call.id = Some(id);
        }
        if message.role == Role::Tool && message.call_id.is_none() {
            message.call_id = waiting.pop_front();
        }
    }
}

fn one(given: &Value, path: &str) -> Result<Message, HttpError> {
    let message: ChatMessage = wire::part(given, path)?;
    if message.audio.is_some() {
        return Err(HttpError::member(&format!("{path}.audio"), "is not supported"));
    }
    // The role has the name that templates have for it.
    let role = match message.role.as_deref() {
        None => return Err(wire::missing(&format!("{path}.role"))),
        Some("developer") => Role::System,
        Some("function") => Role::Tool,
        Some(role) => role.into(),
    };
    let content = content(&message, &role, path)?;
    let calls = calls(&message, given, path)?;
    let mut extra = given.as_object().cloned().unwrap_or_default();
    extra.retain(|name, _| !TYPED.contains(&&**name));
    let ChatMessage { reasoning_content, reasoning, name, tool_call_id: call_id, .. } = message;
    let reasoning = reasoning_content.or(reasoning);
    Ok(Message { role, content, reasoning, calls, call_id, name, extra })
}

fn content(message: &ChatMessage, role: &Role, path: &str) -> Result<Vec<Part>, HttpError> {
    let path = format!("{path}.content");
    let text = |text: &str| Ok(vec![Part::Text(text.to_owned())]);
    match message.content.as_deref() {
        Some(Value::String(given)) => text(given),
        Some(Value::Array(parts)) if parts.is_empty() => text(""),
        Some(Value::Array(parts)) => {
            let place = if *role == Role::Tool { PartPlace::Result } else { PartPlace::Message };
            let part =
                |(at, part): (usize, &Value)| text_part(part, &format!("{path}[{at}]"), place);
            parts.iter().enumerate().map(part).collect()
        }
        Some(_) => Err(HttpError::member(&path, "must be a string or an array of text parts")),
        None if *role != Role::Assistant => Err(wire::missing(&path)),
        None if message.tool_calls.is_some() || message.function_call.is_some() => Ok(Vec::new()),
        None => match (&message.refusal, &message.reasoning_content, &message.reasoning) {
            (Some(refusal), ..) => text(refusal),
            (None, None, None) => Err(wire::missing(&path)),
            _ => text(""),
        },
    }
}

fn text_part(value: &Value, path: &str, place: PartPlace) -> Result<Part, HttpError> {
    if let Value::String(text) = value {
        return Ok(Part::Text(text.clone()));
    }
    let part: ChatPart = wire::part(value, path)?;
    let (name, text) = match part.kind.as_deref().unwrap_or("text") {
        "text" | "input_text" | "output_text" => ("text", part.text),
        "refusal" => ("refusal", part.refusal),
        "file" => {
            let path = format!("{path}.file");
            let file = part.file.ok_or_else(|| wire::missing(&path))?;
            return attachments::file(&ObjectReader::of(&file, &path)?, place).map(Part::Text);
        }
        other => {
            let path = format!("{path}.type");
            return attachments::unread(other, None, &path, place).map(Part::Text);
        }
    };
    text.map(Part::Text).ok_or_else(|| wire::missing(&format!("{path}.{name}")))
}

/// The calls of an assistant, as they were `given` except for the arguments.
fn calls(message: &ChatMessage, given: &Value, path: &str) -> Result<Vec<ToolCall>, HttpError> {
    let mut calls = Vec::new();
    for (at, call) in message.tool_calls.iter().flatten().enumerate() {
        let path = format!("{path}.tool_calls[{at}]");
        if let Some(custom) = &call.custom {
            calls.push(custom.call(call.id.clone(), &format!("{path}.custom"))?);
            continue;
        }
        let path = format!("{path}.function");
        let function = call.function.as_ref().ok_or_else(|| wire::missing(&path))?;
        let mut source = given["tool_calls"][at].as_object().cloned().unwrap_or_default();
        if call.id.is_none() {
            source.shift_remove("id");
        }
        calls.push(called(function, call.id.clone(), source, &path)?);
    }
    if let Some(function) = &message.function_call {
        let source = json!({ "type": "function", "function": given["function_call"] });
        let source = source.as_object().cloned().unwrap_or_default();
        calls.push(called(function, None, source, &format!("{path}.function_call"))?);
    }
    Ok(calls)
}

fn called(
    function: &PastFunction,
    id: Option<String>,
    source: Map<String, Value>,
    path: &str,
) -> Result<ToolCall, HttpError> {
    let name = function.name.clone().ok_or_else(|| wire::missing(&format!("{path}.name")))?;
    let arguments = match function.arguments.as_deref() {
        None => Map::new().into(),
        Some(Value::String(text)) => arguments(text),
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => {
            let problem = "must be the text of an object, or an object";
            return Err(HttpError::member(&format!("{path}.arguments"), problem));
        }
    };
    Ok(ToolCall { id, name, arguments, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(messages: Value) -> Result<Vec<Message>, HttpError> {
        read(messages.as_array().map(Vec::as_slice))
    }

    fn check(message: Value, expected: Value) {
        let mut read = messages(json!([message])).unwrap().remove(0);
        let mut expected = Message::from(expected);
        assert_eq!(read.text().unwrap_or_default(), expected.text().unwrap_or_default());
        expected.content.clone_from(&read.content);
        let calls = read.calls.iter_mut().chain(&mut expected.calls);
        calls.for_each(|call| call.source.clear());
        assert_eq!(read, expected);
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
    fn calls_of_custom_tools_are_calls_of_one_string() {
        let custom = |custom: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "custom", "custom": custom}]})
        };
        let mut expected = call(json!({"input": "{text"}));
        check(custom(json!({"name": "f", "input": "{text"})), expected.clone());
        let read = messages(json!([custom(json!({"name": "f", "input": "{text"}))])).unwrap();
        let source = &read[0].calls[0].source;
        assert_eq!(json!(source), expected["tool_calls"][0].take());
        let nameless = custom(json!({"input": "x"}));
        check_error(json!([nameless]), "messages[0].tool_calls[0].custom.name");
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
                {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": {}}}]}),
        );
        let thought = json!({"role": "assistant", "content": "", "reasoning_content": "r"});
        check(json!({"role": "assistant", "content": "", "reasoning": "r"}), thought.clone());
        check(json!({"role": "assistant", "reasoning_content": "r", "content": null}), thought);
    }

    #[test]
    fn calls_without_ids_get_some_and_so_do_their_results() {
        let nameless = |name: &str| json!({"type": "function", "function": {"name": name}});
        let named = json!({"id": "x", "type": "function", "function": {"name": "g"}});
        let read = messages(json!([
            {"role": "assistant", "tool_calls": [nameless("f"), named, nameless("h")]},
            {"role": "tool", "content": "of f"},
            {"role": "tool", "content": "of g", "tool_call_id": "x"},
            {"role": "tool", "content": "of h"},
            {"role": "tool", "content": "of none"},
            {"role": "assistant", "function_call": {"name": "f"}},
            {"role": "function", "name": "f", "content": "of f"},
        ]))
        .unwrap();
        let made = read.iter().flat_map(|message| &message.calls).map(|call| call.id.as_deref());
        let made: Vec<_> = made.collect();
        assert_eq!(made, [Some("call_0"), Some("x"), Some("call_1"), Some("call_2")]);
        let results = read.iter().filter(|message| message.role == Role::Tool);
        let answered: Vec<_> = results.map(|result| result.call_id.as_deref()).collect();
        assert_eq!(answered, [Some("call_0"), Some("x"), Some("call_1"), None, Some("call_2")]);
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
