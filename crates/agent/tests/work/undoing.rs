//! Taking the last request back: files and transcript.

use crate::Test;
use crate::scene::{Person, Scene, bash, calls, texts, write};
use api::Message;
use serde_json::json;
use std::fs;

pub const TESTS: &[Test] = &[
    ("undo_restores_files_and_transcript", restores),
    ("undo_leaves_what_others_have_changed", leaves),
    ("undo_in_another_process_restores_too", later),
];

fn edit(path: &str, old: &str, new: &str) -> serde_json::Value {
    json!({"path": path, "old": old, "lines": null, "new": new})
}

fn scene() -> Scene {
    let script = vec![
        calls(&[("1", "write", write("new", "1\n")), ("2", "write", write("old", "changed\n"))]),
        calls(&[("3", "edit", edit("old", "changed", "again")), ("4", "bash", bash("touch made"))]),
        Message::assistant("ok"),
        calls(&[("5", "write", write("new", "2\n"))]),
        Message::assistant("ok"),
    ];
    let scene = Scene::new(script);
    fs::write(scene.work().join("old"), "as it was\n").unwrap();
    scene
}

fn restores() {
    let scene = scene();
    let mut agent = scene.agent();
    agent.work("one", &mut Person::default()).unwrap();
    let messages = texts(agent.model.messages());
    agent.work("two", &mut Person::default()).unwrap();
    assert_eq!((scene.read("old"), scene.read("new")), ("again\n".into(), "2\n".into()));
    let undone = agent.undo().unwrap().unwrap();
    assert_eq!((undone.files, undone.kept), (vec!["restored new".to_owned()], vec![]));
    assert_eq!((scene.read("new"), texts(agent.model.messages())), ("1\n".into(), messages));
    let undone = agent.undo().unwrap().unwrap();
    assert_eq!(undone.files, ["restored old", "restored old", "removed new"]);
    assert_eq!(undone.commands, ["touch made"]);
    assert_eq!((scene.read("old"), scene.read("new")), ("as it was\n".into(), "absent".into()));
    assert_eq!(texts(agent.model.messages()), ["system: You work."]);
    assert_eq!(agent.undo().unwrap(), None);
    // A process that continues has the same conversation.
    drop(agent);
    assert_eq!(texts(scene.agent().model.messages()), ["system: You work."]);
}

fn leaves() {
    let scene = scene();
    let mut agent = scene.agent();
    agent.work("one", &mut Person::default()).unwrap();
    fs::write(scene.work().join("old"), "by the user\n").unwrap();
    let undone = agent.undo().unwrap().unwrap();
    assert_eq!(undone.files, ["removed new"]);
    assert_eq!(undone.kept, ["old has changed since; it stays as it is"; 2]);
    assert_eq!(scene.read("old"), "by the user\n");
}

fn later() {
    let scene = scene();
    scene.agent().work("one", &mut Person::default()).unwrap();
    // The temporary folder of the tools is another one.
    let undone = scene.agent().undo().unwrap().unwrap();
    assert_eq!(undone.files, ["restored old", "restored old", "removed new"]);
    assert_eq!((scene.read("old"), scene.read("new")), ("as it was\n".into(), "absent".into()));
}
