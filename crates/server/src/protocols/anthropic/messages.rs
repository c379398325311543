//! The messages of a conversation.

use crate::http::error::HttpError;
use crate::protocols::anthropic::request::Conversation;
use crate::protocols::anthropic::system;
use crate::protocols::anthropic::turns::{self, Answered, AssistantTurn, InputTurn, UserTurn};
use api::Message;
use serde_json::Value;
use std::collections::HashMap;

/// Most messages of one conversation.
const MAX_MESSAGES: usize = 100_000;

/// A conversation, and how the answer to it begins.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub list: Vec<Message>,
    pub prefill: Option<String>,
    /// Where each call of the last answer stands among them.
    places: HashMap<String, usize>,
}

/// The messages of `conversation`, its system prompt first.
pub(crate) fn read(conversation: &Conversation) -> Result<Messages, HttpError> {
    let given = &conversation.messages;
    if given.is_empty() || given.len() > MAX_MESSAGES {
        let message = format!("messages must hold 1 to {MAX_MESSAGES} messages");
        return Err(HttpError::invalid("messages", message));
    }
    let system = system::read(conversation.system.as_ref().unwrap_or(&Value::Null), "system")?;
    let mut turns = turns::read(given)?;
    let mut messages = Messages::default();
    if let Some(InputTurn::Assistant(begun)) =
        turns.pop_if(|turn| matches!(turn, InputTurn::Assistant(_)))
    {
        messages.prefill = prefill(begun, given.len() - 1)?;
    }
    messages.add_all(system, turns)?;
    Ok(messages)
}

/// How the answer begins where the message `at` is its beginning.
fn prefill(begun: AssistantTurn, at: usize) -> Result<Option<String>, HttpError> {
    if begun.reasoning.is_empty() && begun.calls.is_empty() {
        return Ok(Some(begun.text).filter(|text| !text.is_empty()));
    }
    let path = format!("messages[{at}].content");
    let message = format!(
        "{path}: the conversation ends here; the beginning of an answer can hold text alone, \
         and calls need results"
    );
    Err(HttpError::invalid(path, message))
}

impl Messages {
    fn add_all(&mut self, system: Option<String>, turns: Vec<InputTurn>) -> Result<(), HttpError> {
        let mut turns = turns.into_iter().peekable();
        let mut head: Vec<String> = system.into_iter().collect();
        while let Some(InputTurn::System(texts)) =
            turns.next_if(|turn| matches!(turn, InputTurn::System(_)))
        {
            head.extend(texts);
        }
        self.add_system(&head);
        turns.try_for_each(|turn| self.add(turn))
    }

    fn add(&mut self, turn: InputTurn) -> Result<(), HttpError> {
        match turn {
            InputTurn::System(texts) => self.add_system(&texts),
            InputTurn::User(user) => self.add_user(user)?,
            InputTurn::Assistant(assistant) => self.add_assistant(assistant),
        }
        Ok(())
    }

    fn add_system(&mut self, texts: &[String]) {
        if !texts.is_empty() {
            self.list.push(Message::system(texts.join("\n")));
        }
    }

    /// Results in the order of the calls, then what the user says.
    fn add_user(&mut self, user: UserTurn) -> Result<(), HttpError> {
        let UserTurn { results, texts } = user;
        let says = !texts.is_empty() || results.is_empty();
        let mut placed: Vec<(usize, Answered)> = results
            .into_iter()
            .map(|result| Ok((self.place(&result)?, result)))
            .collect::<Result<_, HttpError>>()?;
        placed.sort_by_key(|&(place, _)| place);
        self.list.extend(placed.into_iter().map(|(_, result)| Message {
            call_id: Some(result.call),
            ..Message::new("tool", result.text)
        }));
        if says {
            self.list.push(Message::user(texts.join("\n")));
        }
        Ok(())
    }

    fn place(&self, result: &Answered) -> Result<usize, HttpError> {
        self.places.get(&result.call).copied().ok_or_else(|| {
            let Answered { call, path, .. } = result;
            let message = format!("{path}: the answer before it holds no tool_use {call:?}");
            HttpError::invalid(path, message)
        })
    }

    fn add_assistant(&mut self, assistant: AssistantTurn) {
        let AssistantTurn { reasoning, text, calls } = assistant;
        let ids = calls.iter().enumerate().rev();
        self.places = ids.filter_map(|(place, call)| Some((call.id.clone()?, place))).collect();
        let reasoning = Some(reasoning).filter(|text| !text.is_empty());
        self.list.push(Message { reasoning, calls, ..Message::assistant(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire;
    use serde_json::json;

    fn messages(body: &Value) -> Result<Messages, HttpError> {
        read(&wire::read(body)?)
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
            at_user(result("a", json!([{"type": "image"}]))),
            "messages[0].content[0].content[0].type",
        );
        check_error(
            json!([assistant(json!([result("a", json!("x"))])), user("x")]),
            "messages[0].content[0].type",
        );
    }
}
