//! The turns of a conversation: messages of one role that follow each other are one.

use crate::anthropic::blocks::{self, Block, ToolResult, ToolUse, misplaced};
use crate::anthropic::request::{InputMessage, Role};
use crate::anthropic::system;
use crate::fault::Fault;
use crate::fields::wrong;
use api::arguments;
use serde_json::{Map, Value};

/// What one side said.
#[derive(Debug)]
pub(crate) enum Turn {
    System(Vec<String>),
    User(User),
    Assistant(Assistant),
}

#[derive(Debug, Default)]
pub(crate) struct User {
    pub results: Vec<Answered>,
    pub texts: Vec<String>,
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Answered {
    pub call: String,
    pub text: String,
    /// Where it says which call it answers.
    pub path: String,
}

#[derive(Debug, Default)]
pub(crate) struct Assistant {
    pub reasoning: String,
    pub text: String,
    pub calls: Vec<Called>,
}

#[derive(Debug)]
pub(crate) struct Called {
    pub id: String,
    pub name: String,
    /// An object, or the text of what should have been one.
    pub arguments: Value,
}

/// The turns that `messages` make.
pub(crate) fn read(messages: &[InputMessage]) -> Result<Vec<Turn>, Fault> {
    let mut turns = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages[{at}].content");
        match message.role {
            Role::System => {
                let text = system::read(&message.content, &path)?;
                text.into_iter().for_each(|text| add_system(&mut turns, text));
            }
            Role::User => add_user(&mut turns, User::read(&message.content, &path)?),
            Role::Assistant => {
                add_assistant(&mut turns, Assistant::read(&message.content, &path)?);
            }
        }
    }
    Ok(turns)
}

fn add_system(turns: &mut Vec<Turn>, text: String) {
    match turns.last_mut() {
        Some(Turn::System(texts)) => texts.push(text),
        _ => turns.push(Turn::System(vec![text])),
    }
}

fn add_user(turns: &mut Vec<Turn>, more: User) {
    match turns.last_mut() {
        Some(Turn::User(user)) => {
            user.results.extend(more.results);
            user.texts.extend(more.texts);
        }
        _ => turns.push(Turn::User(more)),
    }
}

fn add_assistant(turns: &mut Vec<Turn>, more: Assistant) {
    match turns.last_mut() {
        Some(Turn::Assistant(assistant)) => {
            add_line(&mut assistant.reasoning, more.reasoning);
            add_line(&mut assistant.text, more.text);
            assistant.calls.extend(more.calls);
        }
        _ => turns.push(Turn::Assistant(more)),
    }
}

fn add_line(text: &mut String, more: String) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(&more);
}

impl User {
    fn read(content: &Value, path: &str) -> Result<Self, Fault> {
        let mut user = Self::default();
        for (path, block) in blocks::read(content, path)? {
            match block {
                Block::Text(block) => user.texts.push(block.text),
                Block::ToolResult(result) => user.results.push(answered(result, &path)?),
                Block::Thinking(_) | Block::ToolUse(_) => {
                    return Err(misplaced(&path, "only assistant messages hold such blocks"));
                }
            }
        }
        Ok(user)
    }
}

impl Assistant {
    /// An answer's own blocks were one text, so that nothing is put between them.
    fn read(content: &Value, path: &str) -> Result<Self, Fault> {
        let mut assistant = Self::default();
        for (path, block) in blocks::read(content, path)? {
            match block {
                Block::Text(block) => assistant.text.push_str(&block.text),
                Block::Thinking(block) => assistant.reasoning.push_str(&block.thinking),
                Block::ToolUse(call) => assistant.calls.push(called(call, &path)?),
                Block::ToolResult(_) => {
                    return Err(misplaced(&path, "only user messages hold such blocks"));
                }
            }
        }
        Ok(assistant)
    }
}

fn answered(result: ToolResult, path: &str) -> Result<Answered, Fault> {
    let mut text = blocks::texts(&result.content, &format!("{path}.content"))?.join("\n");
    // Templates have no place for the flag, and the model must learn of it.
    if result.is_error == Some(true) && !begins_with_error(&text) {
        text.insert_str(0, "Error: ");
    }
    Ok(Answered { call: result.tool_use_id, text, path: format!("{path}.tool_use_id") })
}

fn begins_with_error(text: &str) -> bool {
    let head = text.trim_start().get(.."error".len());
    head.is_some_and(|head| head.eq_ignore_ascii_case("error"))
}

fn called(call: ToolUse, path: &str) -> Result<Called, Fault> {
    let arguments = match call.input {
        Value::Null => Map::new().into(),
        Value::String(text) => arguments(&text),
        object @ Value::Object(_) => object,
        other => return Err(wrong(&format!("{path}.input"), "an object", &other)),
    };
    Ok(Called { id: call.id, name: call.name, arguments })
}
