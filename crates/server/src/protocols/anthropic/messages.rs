//! The messages of a conversation. Those of one role that follow each other are one turn.

use crate::http::error::HttpError;
use crate::http::fields::wrong;
use crate::protocols::anthropic::blocks::{
    self, BlockSource, InputBlock, ToolResult, ToolUse, misplaced,
};
use crate::protocols::anthropic::request::{ClearAt, Conversation, InputMessage, InputRole};
use crate::protocols::anthropic::system;
use crate::protocols::sealed::SUMMARY;
use crate::protocols::warnings::Warnings;
use api::{Message, ToolCall, arguments};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Most messages of one conversation.
const MAX_MESSAGES: usize = 100_000;

/// A conversation, and how the answer to it begins.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub list: Vec<Message>,
    pub prefill: Option<String>,
    /// Blocks that change the tools, in their order, with their paths.
    pub tool_changes: Vec<(String, InputBlock)>,
    /// Where each call of the last answer stands among them.
    places: HashMap<String, usize>,
}

/// Consecutive messages of one role.
#[derive(Debug)]
struct InputTurn {
    /// What stands for all messages before the turn.
    summary: Option<String>,
    role: InputRole,
    /// Each block of a user, each message of others.
    texts: Vec<String>,
    reasoning: Vec<String>,
    calls: Vec<ToolCall>,
    results: Vec<Answered>,
}

/// The answer to a call.
#[derive(Debug)]
struct Answered {
    call: String,
    text: String,
    /// The path of the member that names the call.
    path: String,
}

/// The messages of `conversation`, its system prompt first.
pub(crate) fn read(
    conversation: &Conversation,
    warnings: &mut Warnings,
) -> Result<Messages, HttpError> {
    let given = &conversation.messages;
    if given.is_empty() || given.len() > MAX_MESSAGES {
        let message = format!("messages must hold 1 to {MAX_MESSAGES} messages");
        return Err(HttpError::invalid("messages", message));
    }
    let (mut turns, mut messages) = (Vec::new(), Messages::default());
    let system = conversation.system.as_deref().unwrap_or(&Value::Null);
    let changes = &mut messages.tool_changes;
    turns.extend(InputTurn::of_system(system, "system", changes, warnings)?);
    let own = turns.len();
    let last_user = given.iter().rposition(|message| message.role == InputRole::User);
    for (at, InputMessage { role, content, clear_at, output_config }) in given.iter().enumerate() {
        let path = format!("messages[{at}].content");
        if output_config.as_ref().is_some_and(|config| !config.is_empty()) {
            warnings.add("output_config", "that of a single message has no effect");
        }
        let mut turn = match role {
            InputRole::System => {
                let turn = InputTurn::of_system(content, &path, changes, warnings)?;
                let over = *clear_at == Some(ClearAt::NextUserMessage) && Some(at) < last_user;
                turn.filter(|_| !over)
            }
            role => Some(InputTurn::read(*role, content, &path, warnings)?),
        };
        if let Some(summary) = turn.as_mut().and_then(|turn| turn.summary.take()) {
            turns.truncate(own);
            let texts = vec![format!("{SUMMARY}{summary}")];
            turns.push(InputTurn { texts, ..InputTurn::new(InputRole::User) });
            turn = turn.filter(|turn| !turn.is_empty());
        }
        match (turns.last_mut(), turn) {
            (_, None) => {}
            (Some(last), Some(turn)) if last.role == turn.role => last.extend(turn),
            (_, Some(turn)) => turns.push(turn),
        }
    }
    if let Some(begun) = turns.pop_if(|turn| turn.role == InputRole::Assistant) {
        messages.prefill = prefill(begun, given.len() - 1)?;
    }
    turns.into_iter().try_for_each(|turn| messages.add(turn))?;
    Ok(messages)
}

/// How the answer begins where the message `at` is its beginning.
fn prefill(begun: InputTurn, at: usize) -> Result<Option<String>, HttpError> {
    if begun.reasoning.is_empty() && begun.calls.is_empty() {
        return Ok(Some(begun.texts.join("\n")).filter(|text| !text.is_empty()));
    }
    let problem = "the conversation ends here; the beginning of an answer can hold text alone, \
                   and calls need results";
    Err(HttpError::at(&format!("messages[{at}].content"), problem))
}

impl InputTurn {
    /// A turn that says nothing.
    fn new(role: InputRole) -> Self {
        let (summary, texts, reasoning, calls, results) = Default::default();
        Self { summary, role, texts, reasoning, calls, results }
    }

    fn is_empty(&self) -> bool {
        let Self { texts, reasoning, calls, results, .. } = self;
        texts.is_empty() && reasoning.is_empty() && calls.is_empty() && results.is_empty()
    }

    /// The system prompt `content`; `None` if it has no text.
    fn of_system(
        content: &Value,
        path: &str,
        changes: &mut Vec<(String, InputBlock)>,
        warnings: &mut Warnings,
    ) -> Result<Option<Self>, HttpError> {
        let system::SystemPrompt { text, tool_changes } = system::read(content, path, warnings)?;
        changes.extend(tool_changes);
        Ok(text.map(|text| Self { texts: vec![text], ..Self::new(InputRole::System) }))
    }

    /// What a message of a user or an assistant with `content` says.
    fn read(
        role: InputRole,
        content: &Value,
        path: &str,
        warnings: &mut Warnings,
    ) -> Result<Self, HttpError> {
        let mut turn = Self::new(role);
        let user = role == InputRole::User;
        let source = if user { BlockSource::User } else { BlockSource::Assistant };
        // An answer's own blocks were one text, so that nothing is put between them.
        let (mut text, mut reasoning) = (String::new(), String::new());
        for (path, block) in blocks::read(content, path, source, warnings)? {
            match (block, user) {
                (InputBlock::Text(block), true) => turn.texts.push(block),
                (InputBlock::Text(block), false) => text.push_str(&block),
                (InputBlock::Thinking(block), false) => reasoning.push_str(&block),
                (InputBlock::ToolUse(call), false) => turn.calls.push(called(call, &path)?),
                (InputBlock::ToolResult(it), true) => {
                    turn.results.push(answered(it, &path, warnings)?);
                }
                (InputBlock::Summary(summary), _) => {
                    turn = Self { summary: Some(summary), ..Self::new(role) };
                    (text, reasoning) = Default::default();
                }
                (InputBlock::ToolResult(_), false) => {
                    return Err(misplaced(&path, "only user messages hold such blocks"));
                }
                (_, true) => {
                    return Err(misplaced(&path, "only assistant messages hold such blocks"));
                }
                (_, false) => {
                    return Err(misplaced(&path, "only system messages hold such blocks"));
                }
            }
        }
        turn.texts.extend(Some(text).filter(|text| !text.is_empty()));
        turn.reasoning.extend(Some(reasoning).filter(|text| !text.is_empty()));
        Ok(turn)
    }

    fn extend(&mut self, more: Self) {
        self.texts.extend(more.texts);
        self.reasoning.extend(more.reasoning);
        self.calls.extend(more.calls);
        self.results.extend(more.results);
    }
}

impl Messages {
    fn add(&mut self, turn: InputTurn) -> Result<(), HttpError> {
        let text = turn.texts.join("\n");
        match turn.role {
            InputRole::System => self.list.push(Message::system(text)),
            InputRole::User => {
                let says = !turn.texts.is_empty() || turn.results.is_empty();
                self.add_results(turn.results)?;
                self.list.extend(says.then(|| Message::user(text)));
            }
            InputRole::Assistant => {
                let calls = turn.calls;
                let ids = calls.iter().enumerate().rev();
                self.places =
                    ids.filter_map(|(place, call)| Some((call.id.clone()?, place))).collect();
                let reasoning = Some(turn.reasoning.join("\n")).filter(|text| !text.is_empty());
                self.list.push(Message { reasoning, calls, ..Message::assistant(text) });
            }
        }
        Ok(())
    }

    /// Adds results in the order of their calls.
    fn add_results(&mut self, results: Vec<Answered>) -> Result<(), HttpError> {
        let mut placed = Vec::with_capacity(results.len());
        for result in results {
            let Answered { call, path, .. } = &result;
            let place = self.places.get(call).copied().ok_or_else(|| {
                HttpError::at(path, format!("the answer before it holds no tool_use {call:?}"))
            })?;
            placed.push((place, result));
        }
        placed.sort_by_key(|&(place, _)| place);
        self.list.extend(placed.into_iter().map(|(_, result)| Message {
            call_id: Some(result.call),
            ..Message::new("tool", result.text)
        }));
        Ok(())
    }
}

fn answered(
    result: ToolResult,
    path: &str,
    warnings: &mut Warnings,
) -> Result<Answered, HttpError> {
    let content = format!("{path}.content");
    let texts = blocks::texts(result.content.as_deref(), &content, BlockSource::Tool, warnings)?;
    let mut text = texts.join("\n");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire;
    use serde_json::json;

    fn messages(body: &Value) -> Result<Messages, HttpError> {
        read(&wire::read(body)?, &mut Warnings::default())
    }

    fn check_list(mut list: Vec<Message>, expected: &Value) {
        let calls = list.iter_mut().flat_map(|message| &mut message.calls);
        // Where a client wrote no call, templates see one in the usual order.
        calls.for_each(|call| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            let whole = json!({ "id": call.id, "type": "function", "function": function });
            call.source = whole.as_object().cloned().unwrap();
        });
        let expected = expected.as_array().unwrap().iter().cloned().map(Message::from);
        assert_eq!(list, expected.collect::<Vec<_>>());
    }

    fn check(conversation: Value, expected: Value) {
        let body = json!({ "messages": conversation });
        check_list(messages(&body).unwrap().list, &expected);
    }

    fn check_error(conversation: Value, param: &str) {
        let body = json!({ "messages": conversation });
        let error = messages(&body).expect_err(&body.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{body}");
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn tool_use(id: &str, input: Value) -> Value {
        json!({"type": "tool_use", "id": id, "name": "f", "input": input})
    }

    fn result(id: &str, content: Value) -> Value {
        json!({"type": "tool_result", "tool_use_id": id, "content": content})
    }

    fn assistant(content: Value) -> Value {
        json!({"role": "assistant", "content": content})
    }

    fn function(id: &str, arguments: Value) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
    }

    fn tool(id: &str, content: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": content})
    }

    #[test]
    fn answers_come_back_as_they_were_given() {
        let answer = json!([
            {"type": "thinking", "thinking": "why", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            text("let me "),
            text("see"),
            tool_use("a", json!({"z": 1, "a": 2})),
        ]);
        let expected = json!({
            "role": "assistant", "content": "let me see", "reasoning_content": "why",
            "tool_calls": [function("a", json!({"z": 1, "a": 2}))],
        });
        let rest = json!({"role": "user", "content": [result("a", json!("ok"))]});
        check(
            json!([user("x"), assistant(answer), rest]),
            json!([user("x"), expected, tool("a", "ok")]),
        );
    }

    #[test]
    fn results_follow_the_order_of_their_calls_and_text_follows_them() {
        let calls = assistant(json!([tool_use("a", json!({})), tool_use("b", json!({}))]));
        let told = assistant_calls(&["a", "b"]);
        let both = result("b", json!([text("1"), text("2")]));
        let first = json!({"role": "user", "content": [text("so?"), both]});
        let mut failed = result("a", json!("no such file"));
        failed["is_error"] = true.into();
        let second = json!({"role": "user", "content": [failed]});
        check(
            json!([user("x"), calls, first, second]),
            json!([
                user("x"),
                told,
                tool("a", "Error: no such file"),
                tool("b", "1\n2"),
                user("so?")
            ]),
        );
    }

    fn assistant_calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids.iter().map(|id| function(id, json!({}))).collect();
        json!({"role": "assistant", "content": "", "tool_calls": calls})
    }

    #[test]
    fn neighbours_of_one_role_are_one_message() {
        let said =
            json!([user("a"), user("b"), assistant(json!("c")), assistant(json!("d")), user("e")]);
        check(said, json!([user("a\nb"), {"role": "assistant", "content": "c\nd"}, user("e")]));
    }

    #[test]
    fn system_prompts_stand_first_and_later_ones_in_their_place() {
        let system = |text: &str| json!({"role": "system", "content": text});
        let body =
            json!({"system": "a", "messages": [system("b"), user("x"), system("c"), user("y")]});
        let expected = json!([system("a\nb"), user("x"), system("c"), user("y")]);
        check_list(messages(&body).unwrap().list, &expected);
    }

    #[test]
    fn arguments_that_a_model_broke_go_on_as_text() {
        let call = |input| json!([user("x"), assistant(json!([tool_use("a", input)])), user("y")]);
        let expected = |arguments| {
            let calls = json!([function("a", arguments)]);
            let told = json!({"role": "assistant", "content": "", "tool_calls": calls});
            json!([user("x"), told, user("y")])
        };
        check(call(json!("{broken")), expected(json!("{broken")));
        check(call(json!("{\"a\": 1}")), expected(json!({"a": 1})));
        check(call(json!(null)), expected(json!({})));
        check_error(call(json!([1])), "messages[1].content[0].input");
    }

    #[test]
    fn last_words_of_the_assistant_begin_the_answer() {
        let prefill = |content| {
            let read = messages(&json!({"messages": [user("x"), assistant(content)]}));
            read.map(|messages| (messages.list.len(), messages.prefill)).map_err(|_| ())
        };
        assert_eq!(prefill(json!("The answer is (")), Ok((1, Some("The answer is (".to_owned()))));
        assert_eq!(prefill(json!("")), Ok((1, None)));
        assert_eq!(prefill(json!([tool_use("a", json!({}))])), Err(()));
        assert_eq!(prefill(json!([{"type": "thinking", "thinking": "x"}])), Err(()));
    }

    #[test]
    fn a_summary_stands_for_all_messages_before_it() {
        let summary = json!({"type": "compaction", "content": "sum"});
        let said = format!("{SUMMARY}sum");
        let system = json!({"role": "system", "content": "s"});
        let answer = json!({"role": "assistant", "content": "x"});
        check(
            json!([
                user("a"),
                answer,
                user("b"),
                assistant(json!([text("y"), summary, text("x")])),
                user("c")
            ]),
            json!([user(&said), answer, user("c")]),
        );
        check(
            json!([user("a"), assistant(json!([summary])), user("c")]),
            json!([user(&format!("{said}\nc"))]),
        );
        let body =
            json!({"system": "s", "messages": [user("a"), assistant(json!([summary])), user("c")]});
        let expected = json!([system, user(&format!("{said}\nc"))]);
        check_list(messages(&body).unwrap().list, &expected);
        // One that failed stands for nothing.
        let failed = json!({"type": "compaction", "content": null});
        check(
            json!([user("a"), assistant(json!([failed, text("x")])), user("c")]),
            json!([user("a"), answer, user("c")]),
        );
    }

    #[test]
    fn system_messages_for_one_turn_go_with_the_next() {
        let reminder = json!({"role": "system", "content": "r", "clear_at": "next_user_message"});
        let shown = json!({"role": "system", "content": "r"});
        let answer = json!({"role": "assistant", "content": "x"});
        check(
            json!([user("a"), reminder, answer, user("b")]),
            json!([user("a"), answer, user("b")]),
        );
        check(json!([user("a"), reminder]), json!([user("a"), shown]));
    }

    #[test]
    fn faults_name_the_message_and_member() {
        let at_user = |block: Value| json!([{"role": "user", "content": [block]}]);
        check_error(json!([]), "messages");
        check_error(json!([{"role": "bot", "content": "x"}]), "messages[0].role");
        check_error(json!([{"role": "user"}]), "messages[0].content");
        check_error(json!([user("x"), {"role": "assistant", "content": 1}]), "messages[1].content");
        check_error(at_user(json!({"type": "image"})), "messages[0].content[0].type");
        check_error(at_user(tool_use("a", json!({}))), "messages[0].content[0].type");
        check_error(at_user(result("a", json!("x"))), "messages[0].content[0].tool_use_id");
        check_error(
            at_user(result("a", json!([{"type": "text"}]))),
            "messages[0].content[0].content[0].text",
        );
        check_error(
            json!([assistant(json!([result("a", json!("x"))])), user("x")]),
            "messages[0].content[0].type",
        );
    }
}
