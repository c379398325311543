//! Messages in the form of OpenAI's API, as logs have them.

use api::{Message, ToolCall};
use serde_json::{Map, Value, json};

/// A message as JSON.
pub(crate) fn message_json(message: &Message) -> Value {
    let mut json = json!({"role": message.role.name(), "content": message.text()});
    if let Some(reasoning) = &message.reasoning {
        json["reasoning_content"] = reasoning.as_str().into();
    }
    if let Some(id) = &message.call_id {
        json["tool_call_id"] = id.as_str().into();
    }
    if let Some(name) = &message.name {
        json["name"] = name.as_str().into();
    }
    if !message.calls.is_empty() {
        json["tool_calls"] = message.calls.iter().map(call_json).collect();
    }
    json
}

fn call_json(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Value::String(text) => text.clone(),
        arguments => arguments.to_string(),
    };
    json!({
        "id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

/// The message that [`message_json`] has written.
pub(crate) fn message_of(json: Value) -> Message {
    let mut message = Message::from(json);
    for call in &mut message.calls {
        // As the model has made it, not as a client sends it.
        call.source = Map::new();
        if let Value::String(text) = call.arguments.take() {
            call.arguments = parsed_arguments(text);
        }
    }
    message
}

/// Arguments as the object that they are the text of, or as the text.
pub(crate) fn parsed_arguments(text: String) -> Value {
    match serde_json::from_str(&text) {
        Ok(object @ Value::Object(_)) => object,
        _ => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let call = |arguments| ToolCall {
            id: Some("1".into()),
            name: "read".into(),
            arguments,
            ..ToolCall::default()
        };
        let answer = Message {
            reasoning: Some("hm".into()),
            calls: vec![call(json!({"path": "é"})), call("{\"cut".into())],
            ..Message::assistant("text")
        };
        let result = Message {
            call_id: Some("1".into()),
            name: Some("read".into()),
            ..Message::new("tool", "done")
        };
        let silent = Message { role: "assistant".into(), ..Message::default() };
        for message in [answer, result, silent, Message::system("s"), Message::user("")] {
            assert_eq!(message_of(message_json(&message)), message);
        }
    }
}
