//! A call of a tool as the user reads it.

use agent::FetchTool;
use api::ToolCall;

/// What a call is about: the command, the address as it is sent, or the file with what is written.
/// Of other tools it is the arguments.
pub(super) fn call_text(call: &ToolCall) -> String {
    if let Some(address) = FetchTool::address(call) {
        return address;
    }
    let text = |name: &str| call.arguments[name].as_str();
    match (call.name.as_str(), text("command"), text("path")) {
        ("bash", Some(command), _) => command.to_owned(),
        ("write", _, Some(path)) => format!("{path}\n{}", marked("+ ", text("content"))),
        ("edit", _, Some(path)) => {
            let lines = text("lines").map(|lines| format!(", lines {lines}")).unwrap_or_default();
            let (old, new) = (marked("- ", text("old")), marked("+ ", text("new")));
            format!("{path}{lines}\n{old}{new}")
        }
        _ => call.arguments.to_string(),
    }
}

/// The lines of a text after a mark.
fn marked(mark: &str, text: Option<&str>) -> String {
    text.unwrap_or_default().lines().map(|line| format!("{mark}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn calls_show_what_they_do() {
        let check = |name: &str, arguments: Value, expected: &str| {
            let call = ToolCall { name: name.into(), arguments, ..ToolCall::default() };
            assert_eq!(call_text(&call), expected);
        };
        check("bash", json!({"command": "make", "wait_s": 60}), "make");
        check("write", json!({"path": "a", "content": "1\n\n2\n"}), "a\n+ 1\n+ \n+ 2\n");
        let edit = json!({"path": "a", "old": "x", "lines": null, "new": "y\nz"});
        check("edit", edit, "a\n- x\n+ y\n+ z\n");
        check("edit", json!({"path": "a", "lines": "2:3", "new": ""}), "a, lines 2:3\n");
        check("read", json!({"path": "a"}), r#"{"path":"a"}"#);
        check("write", json!("{"), r#""{""#);
        check("fetch", json!({"url": "HTTP://A.example?q=\u{e9}"}), "http://a.example/?q=%C3%A9");
    }
}
