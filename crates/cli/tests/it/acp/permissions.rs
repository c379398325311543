//! Questions: nothing runs without a yes, and no answer but one is a yes.

use super::editor::{Editor, Place};
use super::model::{ModelServer, call, text};
use serde_json::{Value, json};

fn bash(command: &str) -> Value {
    json!({"command": command, "wait_s": null})
}

/// An editor whose agent wants to run commands, and the id of the prompt.
fn asked(place: &Place) -> (Editor, ModelServer, String, u64) {
    let model = ModelServer::of(|| {
        let touch = || call("1", "bash", &bash("touch a"));
        vec![touch(), touch(), text("done")]
    });
    let (mut editor, session) = place.session(&model.url, &["--confirm", "writes"]);
    let id = editor.prompt(&session, "touch it");
    (editor, model, session, id)
}

#[test]
fn a_call_runs_once_the_user_allows_it() {
    let place = Place::new();
    let (mut editor, _model, session, id) = asked(&place);
    let (question, params) = editor.question();
    assert_eq!(place.read("a"), "absent");
    assert_eq!(params["sessionId"], *session);
    let shown = &params["toolCall"];
    assert_eq!(shown["toolCallId"], editor.updates("tool_call")[0]["toolCallId"]);
    assert_eq!((&shown["kind"], &shown["status"]), (&"execute".into(), &"pending".into()));
    assert_eq!(shown["content"][0]["content"]["text"], "```\ntouch a\n```");
    let options: Vec<_> = params["options"].as_array().unwrap().iter().collect();
    let kinds: Vec<_> = options.iter().map(|option| option["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    assert_eq!(options[1]["name"], "Allow in this session: bash exactly: touch a");
    editor.choose(&question, "once");
    // Once is not twice.
    let (question, _) = editor.question();
    assert_eq!(place.read("a"), "");
    editor.choose(&question, "no");
    assert_eq!(editor.stop_reason(id), "end_turn");
    let statuses: Vec<_> =
        editor.updates("tool_call_update").iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["in_progress", "completed", "failed"]);
}

#[test]
fn a_rule_for_the_session_asks_once() {
    let place = Place::new();
    let (mut editor, model, _, id) = asked(&place);
    let (question, _) = editor.question();
    editor.choose(&question, "session");
    assert_eq!(editor.stop_reason(id), "end_turn");
    let questions = editor.seen.iter().filter(|it| it["method"] == "session/request_permission");
    assert_eq!(questions.count(), 1);
    assert_eq!(place.read("a"), "");
    assert_eq!(model.requests.try_iter().count(), 3);
}

#[test]
fn what_is_no_yes_is_a_no() {
    let no = |result: Value| {
        let place = Place::new();
        let (mut editor, model, _, id) = asked(&place);
        for _ in 0..2 {
            let (question, _) = editor.question();
            let mut message = json!({"jsonrpc": "2.0", "id": question});
            message.as_object_mut().unwrap().extend(result.as_object().unwrap().clone());
            // Answers to what nobody has asked change nothing.
            editor.answer(&json!(99), json!({"outcome": {"outcome": "selected"}}));
            editor.answer(&json!("1"), json!({"outcome": {"optionId": "once"}}));
            editor.send(&message);
        }
        assert_eq!(editor.stop_reason(id), "end_turn", "{result}");
        assert_eq!(place.read("a"), "absent", "{result}");
        let messages = model.requests.try_iter().last().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(last.starts_with("the call was refused"), "{last}");
    };
    no(json!({"result": {"outcome": {"outcome": "selected", "optionId": "no"}}}));
    no(json!({"result": {"outcome": {"outcome": "cancelled"}}}));
    no(json!({"result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}));
    no(json!({"result": true}));
    no(json!({"error": {"code": -32601, "message": "no such method"}}));
}

#[test]
fn a_cancelled_prompt_takes_its_question_back() {
    let place = Place::new();
    let (mut editor, _model, session, id) = asked(&place);
    let (question, _) = editor.question();
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.stop_reason(id), "cancelled");
    // The answer comes too late.
    editor.choose(&question, "once");
    let id = editor.prompt(&session, "again");
    let (another, _) = editor.question();
    assert_ne!(question, another);
    editor.choose(&question, "once");
    editor.choose(&another, "no");
    assert_eq!(editor.stop_reason(id), "end_turn");
    assert_eq!(place.read("a"), "absent");
}

#[test]
fn a_change_of_a_guarded_file_is_offered() {
    let place = Place::new();
    let model = ModelServer::of(|| vec![call("1", "bash", &bash("echo x >.envrc")), text("done")]);
    let (mut editor, session) = place.session(&model.url, &[]);
    let id = editor.prompt(&session, "write it");
    let (question, params) = editor.question();
    assert_eq!(place.read(".envrc"), "absent");
    assert_eq!(params["toolCall"]["title"], "created .envrc");
    assert_eq!(params["options"].as_array().unwrap().len(), 2);
    editor.choose(&question, "once");
    assert_eq!(editor.stop_reason(id), "end_turn");
    assert_eq!(place.read(".envrc"), "x\n");
}
