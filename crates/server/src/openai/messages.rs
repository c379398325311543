//! Chat messages: from the forms that OpenAI's API allows to the one that templates read.
//!
//! Content parts are joined into a string, and the arguments of earlier tool calls, which travel
//! as JSON text, become objects; text that is no JSON stays text, since a model may have written
//! it and the conversation must go on.

use crate::fault::Fault;
use crate::fields::{Fields, wrong};
use serde_json::{Map, Value};

/// Most messages of one conversation.
const MOST_MESSAGES: usize = 100_000;

/// The messages of `body`, ready for the template.
pub(crate) fn read(body: &Fields<'_>) -> Result<Vec<Value>, Fault> {
    let messages =
        body.array("messages")?.ok_or_else(|| Fault::invalid("messages", "messages is missing"))?;
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        let message = format!("messages must hold 1 to {MOST_MESSAGES} messages");
        return Err(Fault::invalid("messages", message));
    }
    messages
        .iter()
        .enumerate()
        .map(|(at, message)| one(message, &format!("messages[{at}]")))
        .collect()
}

fn one(message: &Value, path: &str) -> Result<Value, Fault> {
    let fields = Fields::of(message, path)?;
    let role = fields
        .text("role")?
        .ok_or_else(|| Fault::invalid(fields.path("role"), format!("{path}.role is missing")))?;
    let mut out = fields.object().clone();
    let calls = tool_calls(&fields)?;
    let content = content(&fields)?;
    if content.is_null() && !(role == "assistant" && out.contains_key("tool_calls")) {
        let param = fields.path("content");
        return Err(Fault::invalid(&param, format!("{param} is missing")));
    }
    out.insert("content".into(), content);
    match calls {
        Some(calls) => out.insert("tool_calls".into(), calls),
        None => out.shift_remove("tool_calls"),
    };
    Ok(Value::Object(out))
}

fn content(fields: &Fields<'_>) -> Result<Value, Fault> {
    match fields.value("content") {
        None => Ok(Value::Null),
        Some(Value::String(text)) => Ok(text.clone().into()),
        Some(Value::Array(parts)) => joined(parts, &fields.path("content")).map(Value::String),
        Some(other) => {
            Err(wrong(&fields.path("content"), "a string or an array of text parts", other))
        }
    }
}

/// The texts of `parts`, one line each where there are several.
fn joined(parts: &[Value], path: &str) -> Result<String, Fault> {
    let texts: Result<Vec<&str>, Fault> = parts
        .iter()
        .enumerate()
        .map(|(at, part)| text_part(part, &format!("{path}[{at}]")))
        .collect();
    Ok(texts?.join("\n"))
}

fn text_part<'a>(part: &'a Value, path: &str) -> Result<&'a str, Fault> {
    if let Some(text) = part.as_str() {
        return Ok(text);
    }
    let fields = Fields::of(part, path)?;
    let kind = fields.text("type")?.unwrap_or("text");
    if !matches!(kind, "text" | "input_text" | "output_text" | "refusal") {
        let param = fields.path("type");
        return Err(Fault::invalid(
            &param,
            format!("{param}: parts of type {kind} are not supported"),
        ));
    }
    let name = if kind == "refusal" { "refusal" } else { "text" };
    fields.text(name)?.ok_or_else(|| {
        let param = fields.path(name);
        Fault::invalid(&param, format!("{param} is missing"))
    })
}

/// The calls of an assistant message with their arguments as objects.
fn tool_calls(fields: &Fields<'_>) -> Result<Option<Value>, Fault> {
    let Some(calls) = fields.array("tool_calls")? else { return Ok(None) };
    if calls.is_empty() {
        return Ok(None);
    }
    let path = fields.path("tool_calls");
    let calls: Result<Vec<Value>, Fault> = calls
        .iter()
        .enumerate()
        .map(|(at, call)| tool_call(call, &format!("{path}[{at}]")))
        .collect();
    calls.map(|calls| Some(calls.into()))
}

fn tool_call(call: &Value, path: &str) -> Result<Value, Fault> {
    let fields = Fields::of(call, path)?;
    let mut out = fields.object().clone();
    if let Some(function) = fields.fields("function")? {
        let mut inner = function.object().clone();
        if let Some(text) = inner.get("arguments").and_then(Value::as_str) {
            let arguments = arguments(text);
            inner.insert("arguments".into(), arguments);
        }
        out.insert("function".into(), inner.into());
    }
    Ok(out.into())
}

/// The arguments of a call as templates read them: an object, or the text that is none.
pub(crate) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Map::new().into();
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(messages: Value) -> Result<Vec<Value>, Fault> {
        let body = json!({ "messages": messages });
        read(&Fields::of_body(&body).unwrap())
    }

    fn check(message: Value, expected: Value) {
        assert_eq!(messages(json!([message])).unwrap(), [expected]);
    }

    fn check_fault(all: Value, param: &str) {
        let fault = messages(all.clone()).expect_err(&all.to_string());
        assert_eq!(fault.body()["error"]["param"], param, "{all}");
    }

    #[test]
    fn text_parts_become_one_string() {
        let part = |text: &str| json!({"type": "text", "text": text});
        check(
            json!({"role": "user", "content": [part("a"), part("b")], "name": "n"}),
            json!({"role": "user", "content": "a\nb", "name": "n"}),
        );
        check(json!({"role": "user", "content": []}), json!({"role": "user", "content": ""}));
    }

    #[test]
    fn tool_arguments_become_objects_and_broken_ones_stay_text() {
        let call = |arguments: Value| {
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function",
                 "function": {"name": "f", "arguments": arguments}}]})
        };
        check(call(json!(r#"{"x": 1}"#)), call(json!({"x": 1})));
        check(call(json!("")), call(json!({})));
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
    fn faults_name_the_message_and_member() {
        check_fault(json!([]), "messages");
        check_fault(json!("hi"), "messages");
        check_fault(json!([1]), "messages[0]");
        check_fault(json!([{"content": "x"}]), "messages[0].role");
        check_fault(json!([{"role": "user"}]), "messages[0].content");
        check_fault(json!([{"role": "user", "content": 3}]), "messages[0].content");
        let image = json!([{"type": "text", "text": "a"}, {"type": "image_url"}]);
        check_fault(json!([{"role": "user", "content": image}]), "messages[0].content[1].type");
        check_fault(
            json!([{"role": "assistant", "tool_calls": [{"function": 1}]}]),
            "messages[0].tool_calls[0].function",
        );
    }
}
