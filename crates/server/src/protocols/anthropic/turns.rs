//! The turns of a conversation: messages of one role that follow each other are one.

use crate::http::error::HttpError;
use crate::http::fields::wrong;
use crate::protocols::anthropic::blocks::{self, InputBlock, ToolResult, ToolUse, misplaced};
use crate::protocols::anthropic::request::{InputMessage, InputRole};
use crate::protocols::anthropic::system;
use api::{ToolCall, arguments};
use serde_json::{Map, Value};

/// What one side said.
#[derive(Debug)]
pub(crate) enum InputTurn {
    System(Vec<String>),
    User(UserTurn),
    Assistant(AssistantTurn),
}

#[derive(Debug, Default)]
pub(crate) struct UserTurn {
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
pub(crate) struct AssistantTurn {
    pub reasoning: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
}

/// The turns that `messages` make.
pub(crate) fn read(messages: &[InputMessage]) -> Result<Vec<InputTurn>, HttpError> {
    let mut turns = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages[{at}].content");
        match message.role {
            InputRole::System => {
                let text = system::read(&message.content, &path)?;
                text.into_iter().for_each(|text| add_system(&mut turns, text));
            }
            InputRole::User => add_user(&mut turns, UserTurn::read(&message.content, &path)?),
            InputRole::Assistant => {
                add_assistant(&mut turns, AssistantTurn::read(&message.content, &path)?);
            }
        }
    }
    Ok(turns)
}

fn add_system(turns: &mut Vec<InputTurn>, text: String) {
    match turns.last_mut() {
        Some(InputTurn::System(texts)) => texts.push(text),
        _ => turns.push(InputTurn::System(vec![text])),
    }
}

fn add_user(turns: &mut Vec<InputTurn>, more: UserTurn) {
    match turns.last_mut() {
        Some(InputTurn::User(user)) => {
            user.results.extend(more.results);
            user.texts.extend(more.texts);
        }
        _ => turns.push(InputTurn::User(more)),
    }
}

fn add_assistant(turns: &mut Vec<InputTurn>, more: AssistantTurn) {
    match turns.last_mut() {
        Some(InputTurn::Assistant(assistant)) => {
            add_line(&mut assistant.reasoning, more.reasoning);
            add_line(&mut assistant.text, more.text);
            assistant.calls.extend(more.calls);
        }
        _ => turns.push(InputTurn::Assistant(more)),
    }
}

fn add_line(text: &mut String, more: String) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(&more);
}

impl UserTurn {
    fn read(content: &Value, path: &str) -> Result<Self, HttpError> {
        let mut user = Self::default();
        for (path, block) in blocks::read(content, path)? {
            match block {
                InputBlock::Text(block) => user.texts.push(block.text),
                InputBlock::ToolResult(result) => user.results.push(answered(result, &path)?),
                InputBlock::Thinking(_) | InputBlock::ToolUse(_) => {
                    return Err(misplaced(&path, "only assistant messages hold such blocks"));
                }
            }
        }
        Ok(user)
    }
}

impl AssistantTurn {
    /// An answer's own blocks were one text, so that nothing is put between them.
    fn read(content: &Value, path: &str) -> Result<Self, HttpError> {
        let mut assistant = Self::default();
        for (path, block) in blocks::read(content, path)? {
            match block {
                InputBlock::Text(block) => assistant.text.push_str(&block.text),
                InputBlock::Thinking(block) => assistant.reasoning.push_str(&block.thinking),
                InputBlock::ToolUse(call) => assistant.calls.push(called(call, &path)?),
                InputBlock::ToolResult(_) => {
                    return Err(misplaced(&path, "only user messages hold such blocks"));
                }
            }
        }
        Ok(assistant)
    }
}

fn answered(result: ToolResult, path: &str) -> Result<Answered, HttpError> {
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

fn called(call: ToolUse, path: &str) -> Result<ToolCall, HttpError> {
    let arguments = match call.input {
        Value::Null => Map::new().into(),
        Value::String(text) => arguments(&text),
        object @ Value::Object(_) => object,
        other => return Err(wrong(&format!("{path}.input"), "an object", &other)),
    };
    Ok(ToolCall { id: Some(call.id), name: call.name, arguments, ..ToolCall::default() })
}
