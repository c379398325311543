//! What is printed without `--json`: the text as it is, and nothing that a terminal obeys.

use super::scene::{AgentScene, bash, is_confined};
use super::server::ServerAnswer;
use crate::gannet::Ended;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

const TEXT: &str = "a\u{1b}]0;title\u{7}\u{9b}2J\u{202e}é\n";

fn scene() -> AgentScene {
    let fetch = json!({"url": "http://host.invalid/\u{1b}[2J\u{9b}2J"});
    let calls = [("1", "bash", bash("printf '\\033[2J'")), ("2", "fetch", fetch)];
    AgentScene::new(vec![ServerAnswer::calls(&calls), ServerAnswer::text(TEXT)])
}

#[test]
fn text_is_printed_as_it_is() {
    if !is_confined("text_is_printed_as_it_is") {
        return;
    }
    let ended = Ended::from(scene().command().arg("go").output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(3), ""));
    assert!(ended.out.starts_with("\n[bash] {\"command\":\"printf"), "{}", ended.out);
    let refused = "\n[refused: no user can be asked] fetch http://host.invalid/%1B[2J%C2%9B2J\n";
    assert!(ended.out.contains(refused), "{}", ended.out);
    assert!(ended.out.ends_with(&format!("{TEXT}\n")), "{}", ended.out);
}

#[test]
fn a_terminal_obeys_nothing_of_an_answer() {
    if !is_confined("a_terminal_obeys_nothing_of_an_answer") {
        return;
    }
    let scene = scene();
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let mut command = scene.command();
    command.arg("go").stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = File::from(ours).read_to_end(&mut shown);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let shown = String::from_utf8(shown).unwrap();
    let is_obeyed = |it: char| it.is_control() && !matches!(it, '\n' | '\r');
    assert_eq!(shown.find(is_obeyed), None, "{shown:?}");
    assert!(shown.contains("a\\x1b]0;title\\x07\\u{9b}2J\\u{202e}é"), "{shown:?}");
}
