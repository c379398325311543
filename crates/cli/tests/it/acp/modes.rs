//! Modes of a session.

use super::editor::{Editor, Place};
use super::model::{ModelServer, call, text};
use serde_json::{Value, json};

fn set(editor: &mut Editor, session: &str, mode: &str) -> Result<Value, i64> {
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": mode}))
}

/// A model that writes `x` in each turn, and then `y` by a command.
fn writer() -> ModelServer {
    ModelServer::new(|messages| {
        let results = messages.iter().rev().take_while(|it| it["role"] == "tool").count();
        let called = messages.iter().rev().take_while(|it| it["role"] != "user").count();
        match (results, called) {
            (0, _) => call("1", "write", &json!({"path": "x", "content": "x\n"})),
            (_, 2) => call("2", "bash", &json!({"command": "echo y >y", "wait_s": null})),
            _ => text("done"),
        }
    })
}

#[test]
fn the_mode_says_when_the_user_is_asked() {
    let place = Place::new();
    let model = writer();
    let mut editor = place.editor(&model.url, &[]);
    editor.initialize();
    let opened = editor.call("session/new", json!({"cwd": place.work(), "mcpServers": []}));
    let opened = opened.unwrap();
    let session = opened["sessionId"].as_str().unwrap();
    assert_eq!(opened["modes"]["currentModeId"], "outside");
    let modes = opened["modes"]["availableModes"].as_array().unwrap();
    let ids: Vec<_> = modes.iter().map(|mode| mode["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["outside", "writes", "refuse", "allow", "plan"]);
    assert_eq!(set(&mut editor, session, "yes"), Err(-32602));
    assert_eq!(set(&mut editor, "other", "writes"), Err(-32002));
    assert_eq!(editor.work(session, "write"), "end_turn");
    assert_eq!(place.read("x"), "x\n");
    assert_eq!(set(&mut editor, session, "writes"), Ok(json!({})));
    assert_eq!(editor.updates("current_mode_update")[0]["currentModeId"], "writes");
    let id = editor.prompt(session, "write");
    for _ in 0..2 {
        let (question, _) = editor.question();
        editor.choose(&question, "no");
    }
    assert_eq!(editor.stop_reason(id), "end_turn");
}

#[test]
fn nothing_is_written_in_plan() {
    let place = Place::new();
    let model = writer();
    let (mut editor, session) = place.session(&model.url, &["--confirm", "allow"]);
    assert_eq!(set(&mut editor, &session, "plan"), Ok(json!({})));
    assert_eq!(editor.work(&session, "write"), "end_turn");
    assert_eq!((place.read("x"), place.read("y")), ("absent".to_owned(), "absent".to_owned()));
    let last = |model: &ModelServer| {
        let messages = model.requests.try_iter().last().unwrap();
        let user = messages.iter().rfind(|message| message["role"] == "user").unwrap();
        user["content"].as_str().unwrap().to_owned()
    };
    assert!(last(&model).contains("[From here on, plan"));
    // The model is told once.
    assert_eq!(set(&mut editor, &session, "plan"), Ok(json!({})));
    assert_eq!(editor.work(&session, "write"), "end_turn");
    assert_eq!(last(&model), "write");
    assert_eq!(set(&mut editor, &session, "allow"), Ok(json!({})));
    assert_eq!(editor.work(&session, "write"), "end_turn");
    assert!(last(&model).starts_with("[The plan has ended"));
    assert_eq!((place.read("x"), place.read("y")), ("x\n".to_owned(), "y\n".to_owned()));
}
