//! Sessions that are made, loaded and closed.

use super::editor::Place;
use super::model::{ModelServer, Step, call, called, text};
use serde_json::{Value, json};
use std::path::Path;

fn model() -> ModelServer {
    ModelServer::of(|| {
        let first = vec![
            Step::Delta(json!({"reasoning_content": "hm"})),
            called("1", "list", &json!({"path": ".", "depth": null})),
            Step::Finish("tool_calls"),
        ];
        vec![first, text("one"), call("2", "bash", &json!({"command": "true", "wait_s": null}))]
    })
}

fn load(session: &str, folder: &Path) -> Value {
    json!({"sessionId": session, "cwd": folder, "mcpServers": []})
}

#[test]
fn a_session_that_is_loaded_shows_what_was_said_and_continues() {
    let place = Place::new();
    let model = model();
    let (mut editor, session) = place.session(&model.url, &[]);
    assert_eq!(editor.work(&session, "what is\n\nhere?"), "end_turn");
    assert!(editor.end().success());
    assert!(place.state().contains(&format!("{session}.jsonl")), "{:?}", place.state());

    let mut editor = place.editor(&model.url, &[]);
    assert_eq!(editor.initialize()["agentCapabilities"]["loadSession"], true);
    let loaded = editor.call("session/load", load(&session, &place.work())).unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "outside");
    let check = |seen: &[Value]| {
        let updates: Vec<_> = seen.iter().map(|it| &it["params"]["update"]).collect();
        let kinds: Vec<_> =
            updates.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
        let expected = [
            "user_message_chunk",
            "agent_thought_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(updates[0]["content"]["text"], "what is\n\nhere?");
        assert_eq!(updates[3]["status"], "completed");
    };
    check(&editor.seen);
    // One that is open shows it again.
    editor.seen.clear();
    assert!(editor.call("session/load", load(&session, &place.work())).is_ok());
    check(&editor.seen);
    editor.seen.clear();
    assert_eq!(editor.work(&session, "and now?"), "end_turn");
    assert_eq!(editor.updates("tool_call")[0]["title"], "bash true");
    let roles: Vec<_> = model.requests.try_iter().last().unwrap();
    assert_eq!(roles.iter().filter(|message| message["role"] == "user").count(), 2);
}

#[test]
fn what_is_no_session_is_not_loaded_nor_made() {
    let place = Place::new();
    let model = model();
    let (mut editor, session) = place.session(&model.url, &[]);
    let before = place.state();
    for other in ["other", "", "../other", "a/b", ".", "\0"] {
        let found = editor.call("session/load", load(other, &place.work()));
        assert_eq!(found, Err(-32002), "{other}");
        let params = json!({"sessionId": other, "prompt": [{"type": "text", "text": "x"}]});
        assert_eq!(editor.call("session/prompt", params), Err(-32002), "{other}");
        assert_eq!(editor.call("session/close", json!({"sessionId": other})), Err(-32002));
    }
    assert_eq!(place.state(), before);
    // Another folder than that of the session.
    let other = tempfile::tempdir().unwrap();
    assert_eq!(editor.call("session/load", load(&session, other.path())), Err(-32602));
    assert_eq!(editor.call("session/close", json!({"sessionId": session})), Ok(json!({})));
    assert_eq!(editor.call("session/load", load(&session, other.path())), Err(-32603));
    assert_eq!(editor.work_error(&session), -32002);
    // One that another process has.
    assert!(editor.call("session/load", load(&session, &place.work())).is_ok());
    let mut second = place.editor(&model.url, &[]);
    second.initialize();
    assert_eq!(second.call("session/load", load(&session, &place.work())), Err(-32603));
}

#[test]
fn a_session_has_the_folder_that_the_client_names() {
    let place = Place::new();
    let model = model();
    let mut editor = place.editor(&model.url, &[]);
    editor.initialize();
    let home = std::env::home_dir().unwrap();
    let missing = place.work().join("missing");
    for folder in [Path::new("/"), Path::new("work"), Path::new(""), &home, &missing] {
        let params = json!({"cwd": folder, "mcpServers": []});
        assert_eq!(editor.call("session/new", params), Err(-32602), "{}", folder.display());
    }
    assert_eq!(place.state(), [""; 0]);
    let servers = json!([{"name": "x", "command": "/bin/false", "args": [], "env": []}]);
    let params = json!({"cwd": place.work(), "mcpServers": servers});
    let session = editor.call("session/new", params).unwrap()["sessionId"].clone();
    assert!(editor.wait_update("notice")["title"].as_str().unwrap().contains("MCP"));
    editor.work(session.as_str().unwrap(), "x");
    let messages = model.request();
    let prompt = messages[1]["content"].as_str().unwrap();
    assert!(prompt.contains(&format!("The folder is {} on ", place.work().display())), "{prompt}");
}

#[test]
fn sessions_that_are_not_kept_cannot_be_loaded() {
    let place = Place::new();
    let model = model();
    let mut editor = place.editor(&model.url, &["--no-session"]);
    assert_eq!(editor.initialize()["agentCapabilities"]["loadSession"], false);
    let session = editor.new_session(&place.work());
    assert_ne!(session, editor.new_session(&place.work()));
    assert_eq!(editor.work(&session, "x"), "end_turn");
    assert_eq!(editor.call("session/close", json!({"sessionId": session})), Ok(json!({})));
    assert_eq!(editor.call("session/load", load(&session, &place.work())), Err(-32002));
    assert_eq!(place.state(), [""; 0]);
}
