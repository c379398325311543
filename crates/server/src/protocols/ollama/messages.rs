//! Messages in the form of Ollama's API.
//!
//! Ollama's calls need no ids and its results name the tool or nothing at all; ids are made here
//! and results given those of the calls they answer, in order.

use crate::http::error::HttpError;
use crate::protocols::attachments::{self, PartPlace};
use api::{Message, Part, Role, ToolCall, arguments};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use utoipa::ToSchema;

/// Most messages of one conversation.
const MAX_MESSAGES: usize = 100_000;
/// Most calls of one message that results are matched with; each result is compared with all.
const MAX_WAITING: usize = 128;

/// One message of a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaMessage {
    /// `system`, `user`, `assistant` or `tool`.
    role: String,
    /// What was said.
    content: Option<String>,
    /// What the model thought before it.
    thinking: Option<String>,
    /// Refused, but in the result of a tool a note stands for each.
    images: Option<Vec<Value>>,
    /// Calls that the model made.
    tool_calls: Option<Vec<OllamaCall>>,
    /// The tool whose result this is.
    tool_name: Option<String>,
    /// The call whose result this is.
    tool_call_id: Option<String>,
}

/// A call that the model made.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ToolCall)]
struct OllamaCall {
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize, ToSchema)]
struct Function {
    name: String,
    arguments: Option<CallArguments>,
}

/// An object; JSON text of one is taken too.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected an object")]
#[schema(as = Arguments)]
enum CallArguments {
    Object(Map<String, Value>),
    Text(String),
}

/// Ids and tools of the calls that wait for their results.
#[derive(Debug, Default)]
struct Calls {
    made: usize,
    waiting: VecDeque<(String, String)>,
}

/// The messages of a conversation.
pub(crate) fn read(messages: Vec<OllamaMessage>) -> Result<Vec<Message>, HttpError> {
    if messages.len() > MAX_MESSAGES {
        let problem = format!("must hold at most {MAX_MESSAGES} messages");
        return Err(HttpError::member("messages", problem));
    }
    let mut calls = Calls::default();
    let numbered = messages.into_iter().enumerate();
    numbered.map(|(at, message)| one(message, at, &mut calls)).collect()
}

fn one(message: OllamaMessage, at: usize, calls: &mut Calls) -> Result<Message, HttpError> {
    let mut out = Message::new(&message.role, message.content.unwrap_or_default());
    let place = if out.role == Role::Tool { PartPlace::Result } else { PartPlace::Message };
    for _ in message.images.iter().flatten() {
        let note = attachments::unread("image", None, &format!("messages[{at}].images"), place)?;
        out.content.push(Part::Text(note));
    }
    out.reasoning = message.thinking.filter(|text| !text.is_empty());
    let made = message.tool_calls.unwrap_or_default();
    if !made.is_empty() {
        calls.waiting.clear();
        out.calls = made.into_iter().map(|call| calls.make(call)).collect();
    }
    if message.role == "tool" {
        (out.call_id, out.name) = (message.tool_call_id, message.tool_name);
        calls.answer(&mut out);
    }
    Ok(out)
}

impl Calls {
    fn make(&mut self, call: OllamaCall) -> ToolCall {
        let id = call.id.unwrap_or_else(|| format!("call_{}", self.made));
        self.made += 1;
        let Function { name, arguments: given } = call.function;
        let arguments = match given {
            None => Map::new().into(),
            Some(CallArguments::Object(object)) => object.into(),
            Some(CallArguments::Text(text)) => arguments(&text),
        };
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((id.clone(), name.clone()));
        }
        ToolCall { id: Some(id), name, arguments, ..ToolCall::default() }
    }

    /// Completes the id and the tool of a `result` by the call that it answers: the call with its
    /// id, or else the first call of its tool, or else the first call.
    fn answer(&mut self, result: &mut Message) {
        let mut waiting = self.waiting.iter();
        let place = match (&result.call_id, &result.name) {
            (Some(id), _) => waiting.position(|(waiting, _)| waiting == id),
            (None, Some(tool)) => waiting.position(|(_, name)| name == tool),
            (None, None) => (!self.waiting.is_empty()).then_some(0),
        };
        if let Some((id, tool)) = place.and_then(|at| self.waiting.remove(at)) {
            result.call_id.get_or_insert(id);
            result.name.get_or_insert(tool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn messages(all: Value) -> Result<Vec<Message>, HttpError> {
        read(serde_json::from_value(all).unwrap())
    }

    #[test]
    fn results_answer_the_calls_before_them() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"x": 1}}});
        let read = messages(json!([
            {"role": "assistant", "content": "", "thinking": "hm",
             "tool_calls": [call("f"), call("g"), call("f")]},
            {"role": "tool", "content": "from g", "tool_name": "g"},
            {"role": "tool", "content": "from f"},
            {"role": "tool", "content": "late", "tool_call_id": "call_2"},
            {"role": "tool", "content": "stray"},
        ]))
        .unwrap();
        let made = |id: &str, name: &str| ToolCall {
            id: Some(id.into()),
            name: name.into(),
            arguments: json!({"x": 1}),
            ..ToolCall::default()
        };
        let calls = vec![made("call_0", "f"), made("call_1", "g"), made("call_2", "f")];
        let expected = [
            Message { reasoning: Some("hm".into()), calls, ..Message::assistant("") },
            json!({"role": "tool", "content": "from g", "tool_call_id": "call_1", "name": "g"})
                .into(),
            json!({"role": "tool", "content": "from f", "tool_call_id": "call_0", "name": "f"})
                .into(),
            json!({"role": "tool", "content": "late", "tool_call_id": "call_2", "name": "f"})
                .into(),
            Message::new("tool", "stray"),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn images_are_refused_where_they_stand() {
        let all = json!([{"role": "user"}, {"role": "user", "content": "", "images": ["aGk="]}]);
        let error = messages(all).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "messages[1].images");
    }

    #[test]
    fn notes_stand_for_images_in_results() {
        let all = json!([{"role": "tool", "content": "seen", "images": ["aGk=", "aGk="]}]);
        let text = messages(all).unwrap()[0].text();
        assert_eq!(text.as_deref(), Some("seen\n[image: not supported]\n[image: not supported]"));
    }
}
