//! Calls of tools as the client shows them.

use super::changes::{changes, difference, hunks};
use super::params::fenced;
use crate::commands::agent::call_text::call_text;
use agent::{GuardedReport, ToolAnswer};
use api::ToolCall;
use serde_json::{Value, json};
use std::path::Path;

/// What tools do, in the words of the protocol; all others are `other`.
const KINDS: [(&str, &str); 8] = [
    ("read", "read"),
    ("list", "read"),
    ("search", "search"),
    ("write", "edit"),
    ("edit", "edit"),
    ("bash", "execute"),
    ("job", "execute"),
    ("fetch", "fetch"),
];
/// Arguments that say what a call is about, the most telling first.
const SUBJECTS: [&str; 5] = ["command", "pattern", "url", "path", "id"];
/// Most bytes of a title.
const MAX_TITLE: usize = 200;

/// The calls that the client shows as not finished. Their ids are the client's: a model may use one
/// twice.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    shown: u64,
    /// The ids of the model and of the client.
    open: Vec<(Option<String>, String)>,
}

impl OpenCalls {
    /// The id of a call, and whether it is new.
    pub fn open(&mut self, call: &ToolCall) -> (String, bool) {
        if let Some((_, id)) = self.open.iter().find(|(known, _)| *known == call.id) {
            return (id.clone(), false);
        }
        let id = self.next();
        self.open.push((call.id.clone(), id.clone()));
        (id, true)
    }

    /// The id of what is no call of the model.
    pub fn next(&mut self) -> String {
        self.shown += 1;
        format!("call-{}", self.shown)
    }

    /// Finishes the call that the model has given this id; gives the client's, if it is open.
    pub fn close(&mut self, call: Option<&str>) -> Option<String> {
        let at = self.open.iter().position(|(known, _)| known.as_deref() == call)?;
        Some(self.open.remove(at).1)
    }

    /// Finishes all calls; gives the client's ids.
    pub fn close_all(&mut self) -> Vec<String> {
        self.open.drain(..).map(|(_, id)| id).collect()
    }
}

/// The update that shows a call for the first time.
pub(super) fn shown(id: &str, call: &ToolCall, workspace: &Path, status: &str) -> Value {
    let mut update = members(id, call, workspace, status);
    update["sessionUpdate"] = "tool_call".into();
    update
}

/// A call that the user is asked about, with all that it does in its content; `preview` is the
/// difference that it would make.
pub(super) fn asked(id: &str, call: &ToolCall, preview: Option<&str>, workspace: &Path) -> Value {
    let argument = |name: &str| call.arguments[name].as_str();
    let path = argument("path").map(|path| workspace.join(path));
    let mut shown = members(id, call, workspace, "pending");
    let texts = argument("old").zip(argument("new"));
    let content = match (call.name.as_str(), path, texts, preview) {
        ("edit", Some(path), Some((old, new)), _) => {
            vec![difference(&path, Some(&printable(old)), &printable(new))]
        }
        (_, Some(path), _, Some(preview)) => previewed(&path, &printable(preview)),
        ("write", ..) => {
            vec![text(&fenced(&printable(argument("content").unwrap_or_default())))]
        }
        _ => vec![text(&fenced(&printable(&call_text(call))))],
    };
    shown["content"] = content.into();
    shown
}

/// What a call would change: the hunks of its difference, or its text.
fn previewed(path: &Path, preview: &str) -> Vec<Value> {
    match hunks(preview) {
        Some(hunks) => hunks.iter().map(|(old, new)| difference(path, Some(old), new)).collect(),
        None => vec![text(&fenced(preview))],
    }
}

/// A change of a guarded file, which was undone and can be made.
pub(super) fn guarded(id: &str, report: &GuardedReport, workspace: &Path, status: &str) -> Value {
    let GuardedReport { path, kind, difference, .. } = report;
    json!({
        "toolCallId": id, "title": title(&format!("{kind} {path}")), "kind": "edit",
        "status": status, "locations": [{"path": workspace.join(path)}],
        "content": [text(&fenced(&printable(difference)))],
    })
}

/// The update with what came of a call.
pub(super) fn finished(
    id: &str,
    call: &ToolCall,
    answer: &ToolAnswer,
    (workspace, temporary): (&Path, &Path),
) -> Value {
    let mut content = changes(call, answer, (workspace, temporary));
    if content.is_empty() {
        content.push(text(&fenced(&answer.text)));
    }
    progress(id, if answer.ok { "completed" } else { "failed" }, Some(content))
}

/// The update of a call with a status and its content, where that is known.
pub(super) fn progress(id: &str, status: &str, content: Option<Vec<Value>>) -> Value {
    let mut update =
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status});
    if let Some(content) = content {
        update["content"] = content.into();
    }
    update
}

/// A text as content of a call.
pub(super) fn text(text: &str) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": text}})
}

fn members(id: &str, call: &ToolCall, workspace: &Path, status: &str) -> Value {
    let argument = |name: &&str| call.arguments[*name].as_str();
    let subject = SUBJECTS.iter().find_map(argument).unwrap_or_default();
    let kind = KINDS.iter().find(|(name, _)| *name == call.name).map_or("other", |(_, kind)| kind);
    let location = argument(&"path").map(|path| {
        let mut location = json!({"path": workspace.join(path)});
        if let Some(line) = call.arguments["from"].as_u64().filter(|line| *line > 0) {
            location["line"] = line.into();
        }
        location
    });
    json!({
        "toolCallId": id, "title": title(&format!("{} {subject}", call.name)), "kind": kind,
        "status": status, "locations": location.into_iter().collect::<Vec<_>>(),
        "rawInput": call.arguments,
    })
}

fn printable(text: &str) -> String {
    agent::printable(text.as_bytes())
}

/// A title: one line that hides nothing but its end.
fn title(title: &str) -> String {
    let line = agent::printable(title.trim().as_bytes()).replace(['\n', '\t'], " ");
    let end = line.floor_char_boundary(MAX_TITLE);
    if end < line.len() { format!("{}…", &line[..end]) } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall {
            id: Some("1".to_owned()),
            name: name.to_owned(),
            arguments,
            ..ToolCall::default()
        }
    }

    #[test]
    fn calls_are_shown_with_kind_title_and_place() {
        let check = |call: ToolCall, kind: &str, title: &str, locations: Value| {
            let found = shown("call-1", &call, Path::new("/w"), "pending");
            assert_eq!((&found["kind"], &found["title"]), (&kind.into(), &title.into()));
            assert_eq!(found["locations"], locations);
        };
        let read = call("read", json!({"path": "a/b.rs", "from": 7, "lines": null}));
        check(read, "read", "read a/b.rs", json!([{"path": "/w/a/b.rs", "line": 7}]));
        let bash = call("bash", json!({"command": "make\n\u{1b}[2J all"}));
        check(bash, "execute", "bash make \\x1b[2J all", json!([]));
        let search = call("search", json!({"pattern": "x", "path": "src"}));
        check(search, "search", "search x", json!([{"path": "/w/src"}]));
        check(call("docs__page", json!("{")), "other", "docs__page", json!([]));
        let long = call("bash", json!({"command": "é".repeat(MAX_TITLE)}));
        let title = shown("call-1", &long, Path::new("/w"), "pending")["title"].clone();
        assert!(title.as_str().unwrap().len() < MAX_TITLE + 10, "{title}");
    }

    #[test]
    fn ids_of_the_model_that_come_again_are_other_calls() {
        let (mut calls, call) = (OpenCalls::default(), call("read", json!({})));
        let (first, is_new) = calls.open(&call);
        assert!(is_new);
        assert_eq!(calls.open(&call), (first.clone(), false));
        assert_eq!(calls.close(Some("1")), Some(first.clone()));
        assert_eq!(calls.close(Some("1")), None);
        let (second, is_new) = calls.open(&call);
        assert!(is_new && second != first);
        assert_eq!(calls.close_all(), [second]);
    }

    #[test]
    fn a_question_shows_all_of_a_command() {
        let command = format!("echo {}; rm x", "a".repeat(300));
        let found = asked("1", &call("bash", json!({"command": command})), None, Path::new("/w"));
        assert_eq!(found["content"], json!([text(&format!("```\n{command}\n```"))]));
        let edit = call("edit", json!({"path": "a", "old": "x", "lines": null, "new": "y"}));
        let expected = json!([{"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}]);
        assert_eq!(asked("1", &edit, None, Path::new("/w"))["content"], expected);
        let check = |name: &str, arguments: Value, expected: &str| {
            let found = asked("1", &call(name, arguments), None, Path::new("/w"));
            assert_eq!(found["content"], json!([text(&format!("```\n{expected}\n```"))]), "{name}");
        };
        let url = format!("https://b\u{fc}cher.example/{}\u{202e}", "a".repeat(300));
        let sent = format!("https://xn--bcher-kva.example/{}%E2%80%AE", "a".repeat(300));
        check("fetch", json!({"url": url}), &sent);
        check("edit", json!({"path": "a", "lines": "2:3", "new": "y"}), "a, lines 2:3\n+ y");
        let hidden = json!({"path": "a", "content": "x\u{202e}y"});
        check("write", hidden, "x\\u{202e}y");
        check("docs__page", json!({"to": "a\u{1b}b"}), r#"{"to":"a\u001bb"}"#);
        check("bash", json!({"command": "make\u{1b}[2J"}), "make\\x1b[2J");
        let write = call("write", json!({"path": "a", "content": "y"}));
        let preview = "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x\n+y\n";
        let expected =
            json!([{"type": "diff", "path": "/w/a", "oldText": "x\n", "newText": "y\n"}]);
        assert_eq!(asked("1", &write, Some(preview), Path::new("/w"))["content"], expected);
    }
}
