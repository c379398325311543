//! Files of conversations in the form of OpenAI's fine-tuning: a JSON object a line.

use crate::input;
use anyhow::{Context, Result, bail};
use api::{Message, Part, Role, Tool, TranscriptRenderer};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::path::Path;

/// The conversations of a file.
#[derive(Debug)]
pub(super) struct ConversationFile {
    /// The name of the file in errors.
    name: String,
    conversations: Vec<SourceConversation>,
}

#[derive(Debug)]
struct SourceConversation {
    /// Counted from 1.
    line: usize,
    messages: Vec<Message>,
    tools: Vec<Tool>,
}

impl ConversationFile {
    /// Reads the file at `path`; `-` means standard input. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// A line of another form, and a file without conversations.
    pub fn read(path: &Path) -> Result<Self> {
        let name = match path == Path::new("-") {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let text = input::read_path(path)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let read = |(at, text): (usize, &str)| {
            let line = at + 1;
            let (messages, tools) = read_line(text).with_context(|| place(&name, line))?;
            Ok(SourceConversation { line, messages, tools })
        };
        let conversations = lines.map(read).collect::<Result<Vec<_>>>()?;
        if conversations.is_empty() {
            bail!("{name}: expected conversations, found none");
        }
        Ok(Self { name, conversations })
    }

    /// The tokens of all conversations, one after the other, each without the tokens `prefix` with
    /// which a text of the model begins.
    pub fn ids(&self, renderer: &TranscriptRenderer, prefix: &[u32]) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        for SourceConversation { line, messages, tools } in &self.conversations {
            let ids = rendered(renderer, messages, tools);
            let ids = ids.with_context(|| place(&self.name, *line))?;
            all.extend_from_slice(ids.strip_prefix(prefix).unwrap_or(&ids));
        }
        Ok(all)
    }
}

/// A text that no message has.
const OTHER_TEXT: &str = "another text";

/// The tokens of a conversation.
///
/// # Errors
///
/// If the template refuses it, or leaves out messages of a role that it does not know.
fn rendered(
    renderer: &TranscriptRenderer,
    messages: &[Message],
    tools: &[Tool],
) -> Result<Vec<u32>> {
    let ids = renderer.tokens(messages.to_vec(), tools.to_vec())?;
    let mut seen = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let Role::Other(role) = &message.role else { continue };
        if !seen.insert(role) {
            continue;
        }
        // Another content shows in the text, unless the message is left out.
        let mut other = messages.to_vec();
        other[at].content = vec![Part::Text(OTHER_TEXT.into())];
        if renderer.tokens(other, tools.to_vec()).is_ok_and(|it| it == ids) {
            let role = role.escape_debug();
            bail!("messages[{at}]: role: the template has no messages of the role {role}");
        }
    }
    Ok(ids)
}

fn place(name: &str, line: usize) -> String {
    format!("{name}, line {line}")
}

fn read_line(text: &str) -> Result<(Vec<Message>, Vec<Tool>)> {
    let line: Map<String, Value> =
        serde_json::from_str(text).context("expected a JSON object with messages")?;
    if line.contains_key("functions") {
        bail!("functions: expected the form that replaced it, tools");
    }
    let messages = list(&line, "messages")?;
    if messages.is_empty() {
        bail!("messages: expected at least one message");
    }
    let messages = messages.iter().enumerate().map(|(at, value)| {
        check_message(value).with_context(|| format!("messages[{at}]"))?;
        Ok(message(value.clone()))
    });
    let tools = list(&line, "tools")?.iter().enumerate().map(|(at, value)| {
        let tool = Tool::from(value.clone());
        if tool.name.is_empty() {
            bail!("tools[{at}]: expected a function with a name");
        }
        Ok(tool)
    });
    Ok((messages.collect::<Result<_>>()?, tools.collect::<Result<_>>()?))
}

/// The list of this name; empty where there is none.
fn list<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a [Value]> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => bail!("{name}: expected a list, found {}", kind(other)),
    }
}

/// A message whose form was checked. Arguments of calls become objects.
fn message(value: Value) -> Message {
    let mut message = Message::from(value);
    // The role has the name that templates have for it.
    if let Role::Other(name) = &message.role {
        match name.as_str() {
            "developer" => message.role = Role::System,
            "function" => message.role = Role::Tool,
            _ => {}
        }
    }
    for call in &mut message.calls {
        if let Value::String(text) = &call.arguments {
            call.arguments = api::arguments(text);
        }
    }
    message
}

fn check_message(value: &Value) -> Result<()> {
    let Value::Object(message) = value else {
        bail!("expected an object, found {}", kind(value));
    };
    if message.get("role").and_then(Value::as_str).is_none_or(str::is_empty) {
        bail!("role: expected a name such as user, found none");
    }
    if message.contains_key("function_call") {
        bail!("function_call: expected the form that replaced it, tool_calls");
    }
    let calls = list(message, "tool_calls")?;
    for (at, call) in calls.iter().enumerate() {
        let name = call["function"]["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            bail!("tool_calls[{at}]: expected a function with a name");
        }
    }
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        None | Some(Value::Null) if !calls.is_empty() => Ok(()),
        Some(Value::Array(parts)) => parts.iter().try_for_each(check_part),
        None | Some(Value::Null) => bail!("content: expected a text, found none"),
        Some(other) => bail!("content: expected a text, found {}", kind(other)),
    }
}

fn check_part(part: &Value) -> Result<()> {
    if part.is_string() || (part["type"] == "text" && part["text"].is_string()) {
        return Ok(());
    }
    let found = part["type"].as_str().unwrap_or(kind(part));
    bail!("content: expected parts of type text, found {}", found.escape_debug())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let error = format!("{:#}", read_line(line).unwrap_err());
        assert!(error.starts_with(expected), "{line}: {error}");
    }

    #[test]
    fn lines_of_another_form_are_refused_with_the_place() {
        check("[]", "expected a JSON object with messages: ");
        check("{", "expected a JSON object with messages: ");
        check("{}", "messages: expected at least one message");
        check(r#"{"messages": "hi"}"#, "messages: expected a list, found a text");
        check(r#"{"messages": ["hi"]}"#, "messages[0]: expected an object, found a text");
        check(r#"{"messages": [{"content": "hi"}]}"#, "messages[0]: role: expected a name");
        let user = r#"{"role": "user", "content": "hi"}"#;
        let second = |members: &str| format!(r#"{{"messages": [{user}, {{{members}}}]}}"#);
        check(&second(r#""role": "assistant""#), "messages[1]: content: expected a text, found");
        check(&second(r#""role": "user", "content": 3"#), "messages[1]: content: expected a text");
        let image = r#""role": "user", "content": [{"type": "image_url"}]"#;
        check(&second(image), "messages[1]: content: expected parts of type text, found image_url");
        let call = r#""role": "assistant", "tool_calls": [{"function": {}}]"#;
        check(&second(call), "messages[1]: tool_calls[0]: expected a function with a name");
        check(&second(r#""role": "assistant", "function_call": {}"#), "messages[1]: function_call");
        let with = |member: &str| format!(r#"{{"messages": [{user}], {member}}}"#);
        check(&with(r#""tools": [{"type": "function"}]"#), "tools[0]: expected a function with");
        check(&with(r#""functions": []"#), "functions: expected the form that replaced it");
    }

    #[test]
    fn arguments_of_calls_are_objects() {
        let call = r#"{"id": "a", "function": {"name": "f", "arguments": "{\"x\": 1}"}}"#;
        let line = format!(r#"{{"messages": [{{"role": "assistant", "tool_calls": [{call}]}}]}}"#);
        let (messages, tools) = read_line(&line).unwrap();
        assert_eq!(messages[0].calls[0].arguments, serde_json::json!({"x": 1}));
        assert!(tools.is_empty() && messages[0].content.is_empty());
    }
}
