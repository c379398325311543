//! Work that the client stops, and work at the same time.

use super::editor::Place;
use super::model::{ModelServer, Step, call, text};
use serde_json::json;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

#[test]
fn an_answer_ends_where_it_is_cancelled() {
    let place = Place::new();
    let model = ModelServer::of(|| {
        vec![vec![Step::Delta(json!({"content": "Hel"})), Step::Stay], text("again")]
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    let id = editor.prompt(&session, "one");
    editor.wait_update("agent_message_chunk");
    // Another prompt is refused meanwhile, and so is loading.
    let second = editor.prompt(&session, "two");
    assert_eq!(editor.result(second), Err(-32600));
    let params = json!({"sessionId": session, "cwd": place.work(), "mcpServers": []});
    assert_eq!(editor.call("session/load", params), Err(-32600));
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.stop_reason(id), "cancelled");
    // To cancel what does not work changes nothing of the next work.
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.work(&session, "three"), "end_turn");
    assert!(editor.texts("agent_message_chunk").ends_with("again"));
}

#[test]
fn a_command_ends_where_it_is_cancelled() {
    let place = Place::new();
    let model = ModelServer::of(|| {
        let command = "echo $$ >pid; sleep 1000; echo more >more";
        vec![call("1", "bash", &json!({"command": command, "wait_s": 900})), text("done")]
    });
    let (mut editor, session) = place.session(&model.url, &[]);
    let id = editor.prompt(&session, "one");
    editor.wait_update("tool_call");
    crate::gannet::until("the command", || place.read("pid").ends_with('\n'));
    editor.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(editor.stop_reason(id), "cancelled");
    let pid = place.read("pid");
    crate::gannet::until("its end", || {
        !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    assert_eq!(place.read("more"), "absent");
}

#[test]
fn sessions_work_at_the_same_time() {
    let place = Place::new();
    let (go, signal) = channel();
    let signal = Arc::new(Mutex::new(signal));
    let model = ModelServer::new(move |messages| {
        let prompt = messages.last().unwrap()["content"].as_str().unwrap();
        match prompt.ends_with("slow") {
            true => {
                let start = Step::Delta(json!({"content": "slow "}));
                let rest = Step::Delta(json!({"content": "end"}));
                vec![start, Step::Wait(Arc::clone(&signal)), rest, Step::Finish("stop")]
            }
            false => text("fast"),
        }
    });
    let (mut editor, slow) = place.session(&model.url, &[]);
    let fast = editor.new_session(&place.work());
    assert_ne!(slow, fast);
    let id = editor.prompt(&slow, "slow");
    editor.wait_update("agent_message_chunk");
    for _ in 0..3 {
        assert_eq!(editor.work(&fast, "fast"), "end_turn");
    }
    go.send(()).unwrap();
    assert_eq!(editor.stop_reason(id), "end_turn");
    let of = |session: &str| {
        let own = editor.seen.iter().filter(|it| it["params"]["sessionId"] == *session);
        own.filter_map(|it| it["params"]["update"]["content"]["text"].as_str()).collect::<String>()
    };
    assert_eq!((of(&slow), of(&fast)), ("slow end".to_owned(), "fastfastfast".to_owned()));
}
