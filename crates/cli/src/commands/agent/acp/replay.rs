//! What was said in a session, as updates.

use super::call_shown::{self, OpenCalls};
use super::editor_user::chunk;
use super::params::fenced;
use agent::WorkedRequest;
use api::Message;
use serde_json::Value;
use std::path::Path;

/// Shows the messages of a session in the folder `workspace`, requests in the user's words.
pub(super) fn replay(
    (messages, requests): (&[Message], &[WorkedRequest]),
    workspace: &Path,
    calls: &mut OpenCalls,
    update: &mut dyn FnMut(Value),
) {
    for (number, message) in messages.iter().enumerate() {
        let request = requests.iter().rfind(|it| it.message <= number);
        let is_first = |it: &&WorkedRequest| it.message == number && !it.is_summed_up;
        let words = request.filter(is_first).map(|request| request.text.clone());
        let text = words.or_else(|| message.text()).unwrap_or_default();
        match message.role.name() {
            "user" => say("user_message_chunk", &text, update),
            "assistant" => {
                let reasoning = message.reasoning.as_deref().unwrap_or_default();
                say("agent_thought_chunk", reasoning, update);
                say("agent_message_chunk", &text, update);
                for call in &message.calls {
                    let (id, _) = calls.open(call);
                    update(call_shown::shown(&id, call, workspace, "in_progress"));
                }
            }
            "tool" => {
                let id = message.call_id.as_deref();
                let has_failed = |it: &WorkedRequest| {
                    it.failed_calls.iter().any(|failed| Some(failed.as_str()) == id)
                };
                let status = if request.is_some_and(has_failed) { "failed" } else { "completed" };
                if let Some(id) = calls.close(id) {
                    let content = vec![call_shown::text(&fenced(&text))];
                    update(call_shown::progress(&id, status, Some(content)));
                }
            }
            _ => {}
        }
    }
    for id in calls.close_all() {
        update(call_shown::progress(&id, "failed", None));
    }
}

fn say(kind: &str, text: &str, update: &mut dyn FnMut(Value)) {
    if !text.is_empty() {
        update(chunk(kind, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ToolCall;
    use serde_json::json;

    #[test]
    fn messages_are_shown_in_their_order() {
        let call = |id: &str| ToolCall {
            id: Some(id.to_owned()),
            name: "read".to_owned(),
            arguments: json!({"path": "a"}),
            ..ToolCall::default()
        };
        let answer = Message {
            reasoning: Some("hm".to_owned()),
            calls: vec![call("1"), call("2"), call("3")],
            ..Message::assistant("I look.")
        };
        let result = |id: &str, text: &str| Message {
            call_id: Some(id.to_owned()),
            ..Message::new("tool", text)
        };
        let first = "Rules.\n\nThe folder is /w on linux. It is Monday.\n\nWhat is\n\nin a?";
        let results = [result("1", "1\tx"), result("2", "there is no file a")];
        let messages: Vec<_> = [Message::system("s"), Message::user(first), answer]
            .into_iter()
            .chain(results)
            .collect();
        let mut shown = Vec::new();
        let mut calls = OpenCalls::default();
        let text = "What is\n\nin a?".to_owned();
        let failed_calls = vec!["2".to_owned()];
        let requests =
            [WorkedRequest { text, message: 1, failed_calls, ..WorkedRequest::default() }];
        replay((&messages, &requests), Path::new("/w"), &mut calls, &mut |update| {
            shown.push(update)
        });
        let kinds: Vec<_> = shown.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
        let expected = [
            "user_message_chunk",
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call",
            "tool_call",
            "tool_call_update",
            "tool_call_update",
            "tool_call_update",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(shown[0]["content"]["text"], "What is\n\nin a?");
        let statuses: Vec<_> = shown[6..].iter().map(|it| it["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["completed", "failed", "failed"]);
        assert_eq!(shown[6]["content"][0]["content"]["text"], "```\n1\tx\n```");
        assert_eq!(shown[6]["toolCallId"], shown[3]["toolCallId"]);
    }
}
