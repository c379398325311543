//! What a client sees of the work on a prompt.

use super::editor::Place;
use super::model::{ModelServer, Step, call, called, text};
use serde_json::{Value, json};

fn read(path: &str) -> Value {
    json!({"path": path, "from": null, "lines": null})
}

#[test]
fn text_thoughts_calls_and_results_are_updates() {
    let place = Place::new();
    place.write("a.txt", "one\ntwo\n");
    let model = ModelServer::of(|| {
        let first = vec![
            Step::Delta(json!({"reasoning_content": "I have "})),
            Step::Delta(json!({"reasoning_content": "to look."})),
            Step::Delta(json!({"content": "I look."})),
            called("1", "read", &read("a.txt")),
            Step::Finish("tool_calls"),
        ];
        vec![first, text("It says one.")]
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    let links = json!([
        {"type": "text", "text": "See "},
        {"type": "resource_link", "name": "a.txt", "uri": "file:///a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "inside\n"}},
    ]);
    let params = json!({"sessionId": session, "prompt": links});
    assert_eq!(editor.call("session/prompt", params).unwrap(), json!({"stopReason": "end_turn"}));
    assert_eq!(editor.texts("agent_thought_chunk"), "I have to look.");
    assert_eq!(editor.texts("agent_message_chunk"), "I look.It says one.");
    let path = place.work().join("a.txt");
    let [shown] = &editor.updates("tool_call")[..] else { panic!("{:?}", editor.seen) };
    assert_eq!((&shown["kind"], &shown["status"]), (&"read".into(), &"in_progress".into()));
    assert_eq!((&shown["title"], &shown["rawInput"]), (&"read a.txt".into(), &read("a.txt")));
    assert_eq!(shown["locations"], json!([{"path": path}]));
    let [done] = &editor.updates("tool_call_update")[..] else { panic!("{:?}", editor.seen) };
    assert_eq!((&done["toolCallId"], &done["status"]), (&shown["toolCallId"], &"completed".into()));
    let result = done["content"][0]["content"]["text"].as_str().unwrap();
    assert!(result.contains("one") && result.contains("two"), "{result}");
    assert!(editor.seen.iter().all(|it| it["params"]["sessionId"] == *session));
    let messages = model.request();
    let prompt = messages.last().unwrap()["content"].as_str().unwrap();
    let expected = "See [a.txt](file:///a.txt)\nfile:///b.txt:\n```\ninside\n```";
    assert!(prompt.ends_with(expected), "{prompt}");
    assert!(editor.end().success());
}

#[test]
fn what_was_written_is_a_difference_of_old_and_new_text() {
    let place = Place::new();
    place.write("a.txt", "one\ntwo\nthree\n");
    let model = ModelServer::of(|| {
        let edit = json!({"path": "a.txt", "old": "two", "lines": null, "new": "2"});
        vec![
            call("1", "edit", &edit),
            call("1", "write", &json!({"path": "a.txt", "content": "new\n"})),
            call("1", "write", &json!({"path": "b.txt", "content": "b\n"})),
            call("1", "edit", &edit),
            text("done"),
        ]
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    assert_eq!(editor.work(&session, "change it"), "end_turn");
    let (a, b) = (place.work().join("a.txt"), place.work().join("b.txt"));
    let difference = |path, old: Value, new| {
        let text = json!({"type": "diff", "path": path, "oldText": old, "newText": new});
        Value::Array(vec![text])
    };
    let done = editor.updates("tool_call_update");
    let content: Vec<_> = done.iter().map(|update| &update["content"]).collect();
    assert_eq!(*content[0], difference(&a, "one\ntwo\nthree\n".into(), "one\n2\nthree\n"));
    assert_eq!(*content[1], difference(&a, "one\n2\nthree\n".into(), "new\n"));
    assert_eq!(*content[2], difference(&b, Value::Null, "b\n"));
    assert_eq!((&done[3]["status"], &content[3][0]["type"]), (&"failed".into(), &"content".into()));
    // The model uses one id for all.
    let ids: std::collections::BTreeSet<_> =
        editor.updates("tool_call").iter().map(|it| it["toolCallId"].to_string()).collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn limits_are_reasons_to_stop() {
    let place = Place::new();
    let model = ModelServer::of(|| {
        let cut = vec![Step::Delta(json!({"content": "cut"})), Step::Finish("length")];
        vec![cut, call("1", "list", &json!({"path": ".", "depth": null})), text("done")]
    });
    let (mut editor, session) = place.session(&model.url, &["--max-turns", "1"]);
    assert_eq!(editor.work(&session, "one"), "max_tokens");
    // The limit is one of each prompt.
    assert_eq!(editor.work(&session, "two"), "max_turn_requests");
}

#[test]
fn an_error_of_the_model_is_one_of_the_request() {
    let place = Place::new();
    let model = ModelServer::new(|messages| match messages.len() {
        // The answer ends before it is whole.
        2 => vec![Step::Delta(json!({"content": "a"}))],
        _ => text("done"),
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    let id = editor.prompt(&session, "one");
    assert_eq!(editor.result(id), Err(-32603));
    assert_eq!(editor.work(&session, "two"), "end_turn");
}
