//! What the program knows of a conversation better than a model that sums it up.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Most paths of a list, and commands.
const MAX_PATHS: usize = 50;
const MAX_COMMANDS: usize = 5;
/// Most bytes of a command.
const MAX_COMMAND: usize = 300;

/// Facts from the calls of a conversation. Shown as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KnownFacts {
    /// The user's last request, word for word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
    /// The last commands with the first line of what came of them: the exit code or the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    commands: Vec<(String, String)>,
}

impl KnownFacts {
    /// Takes a call of a tool, whether it succeeded, and its result. A command counts in any case,
    /// since it has run.
    pub(crate) fn take(&mut self, (tool, arguments): (&str, &Value), ok: bool, result: &str) {
        let text = |name: &str| arguments[name].as_str();
        match (tool, text("path"), text("command")) {
            ("read", Some(path), _) if ok => add_path(&mut self.read, path),
            ("write" | "edit", Some(path), _) if ok => add_path(&mut self.changed, path),
            ("bash", _, Some(command)) => {
                let [command, line] = [command, result.lines().next().unwrap_or_default()]
                    .map(|text| text[..text.floor_char_boundary(MAX_COMMAND)].to_owned());
                self.add_command((command, line));
            }
            _ => {}
        }
    }

    /// Takes later facts.
    pub(crate) fn merge(&mut self, later: &Self) {
        if later.request.is_some() {
            self.request.clone_from(&later.request);
        }
        later.read.iter().for_each(|path| add_path(&mut self.read, path));
        later.changed.iter().for_each(|path| add_path(&mut self.changed, path));
        later.commands.iter().for_each(|command| self.add_command(command.clone()));
    }

    fn add_command(&mut self, command: (String, String)) {
        self.commands.push(command);
        self.commands.drain(..self.commands.len().saturating_sub(MAX_COMMANDS));
    }
}

/// Adds a path as the last one of a list, which it is in once.
fn add_path(list: &mut Vec<String>, path: &str) {
    list.retain(|known| known != path);
    list.push(path.to_owned());
    list.drain(..list.len().saturating_sub(MAX_PATHS));
}

impl fmt::Display for KnownFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, paths) in [("read", &self.read), ("changed", &self.changed)] {
            if !paths.is_empty() {
                writeln!(f, "files {what}: {}", paths.join(", "))?;
            }
        }
        self.commands
            .iter()
            .try_for_each(|(command, result)| writeln!(f, "command: {command} ({result})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_those_of_calls_that_succeeded() {
        let mut facts = KnownFacts::default();
        assert_eq!(facts.to_string(), "");
        let path = |path: &str| json!({"path": path});
        for (tool, arguments, ok) in [
            ("read", path("a"), true),
            ("edit", path("a"), true),
            ("edit", path("not"), false),
            ("write", path("refused"), false),
            ("read", path("b"), true),
            ("read", path("a"), true),
            ("bash", json!({"command": "make"}), false),
        ] {
            facts.take((tool, &arguments), ok, "exit code 1\nx");
        }
        let expected = "files read: b, a\nfiles changed: a\ncommand: make (exit code 1)\n";
        assert_eq!(facts.to_string(), expected);
    }

    #[test]
    fn earlier_facts_stay_and_lists_have_an_end() {
        let mut facts = KnownFacts { request: Some("first".into()), ..KnownFacts::default() };
        facts.take(("write", &json!({"path": "a"})), true, "");
        let mut later = KnownFacts::default();
        later.take(("write", &json!({"path": "b"})), true, "");
        facts.merge(&later);
        assert_eq!(facts.to_string(), "files changed: a, b\n");
        assert_eq!(facts.request.as_deref(), Some("first"));
        for number in 0..100 {
            later.take(("write", &json!({"path": number.to_string()})), true, "");
            later.take(("bash", &json!({"command": "é".repeat(500)})), true, "");
        }
        facts.merge(&later);
        assert_eq!((facts.changed.len(), facts.commands.len()), (MAX_PATHS, MAX_COMMANDS));
        assert!(facts.commands.iter().all(|(command, _)| command.len() <= MAX_COMMAND));
    }
}
