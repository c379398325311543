//! What `write` and `edit` have changed, as differences of the protocol: old and new texts.

use agent::ToolAnswer;
use api::ToolCall;
use serde_json::{Value, json};
use std::path::Path;

/// Most bytes of a text that is shown whole.
const MAX_TEXT: usize = 1 << 20;

/// The difference of two texts of the file at `path`; no old one where the file is new.
pub(super) fn difference(path: &Path, old: Option<&str>, new: &str) -> Value {
    json!({"type": "diff", "path": path, "oldText": old, "newText": new})
}

/// The differences that a call has made, as far as they are known. `temporary` is the folder in
/// which the tools keep what files were.
pub(super) fn changes(
    call: &ToolCall,
    answer: &ToolAnswer,
    (workspace, temporary): (&Path, &Path),
) -> Vec<Value> {
    let [change] = &answer.changed[..] else { return Vec::new() };
    let path = workspace.join(&change.path);
    match call.name.as_str() {
        "edit" => {
            let hunks = hunks(&answer.text).unwrap_or_default();
            hunks.iter().map(|(old, new)| difference(&path, Some(old), new)).collect()
        }
        "write" => {
            let old = change.before.of_tools(temporary).map(String::from_utf8);
            let new = call.arguments["content"].as_str().filter(|new| new.len() <= MAX_TEXT);
            match (old, new) {
                (None, Some(new)) if change.before == agent::FileContent::Absent => {
                    vec![difference(&path, None, new)]
                }
                (Some(Ok(old)), Some(new)) if old.len() <= MAX_TEXT => {
                    vec![difference(&path, Some(&old), new)]
                }
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// The old and the new text of each hunk of a unified difference, which may have a note before it;
/// `None` where it is not whole.
pub(super) fn hunks(text: &str) -> Option<Vec<(String, String)>> {
    let start = text.starts_with("--- ").then_some(0);
    let start = start.or_else(|| text.find("\n--- ").map(|at| at + 1))?;
    let mut hunks: Vec<(String, String)> = Vec::new();
    for line in text[start..].lines().skip(2) {
        if line.starts_with("@@ ") {
            hunks.push(Default::default());
            continue;
        }
        let (old, new) = hunks.last_mut()?;
        let (sign, rest) = line.split_at_checked(1)?;
        let line = format!("{rest}\n");
        match sign {
            " " => [old, new].into_iter().for_each(|side| side.push_str(&line)),
            "-" => old.push_str(&line),
            "+" => new.push_str(&line),
            "\\" => {}
            _ => return None,
        }
    }
    Some(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hunks_have_the_lines_of_both_texts() {
        let before = (1..=30).map(|line| format!("line {line}\n")).collect::<String>();
        let after = before.replace("line 2\n", "").replace("line 25\n", "new\n+ x\n");
        let text = agent::difference("a", before.as_bytes(), after.as_bytes());
        let found = hunks(&format!("a note\n{text}")).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, "line 1\nline 2\nline 3\nline 4\nline 5\n");
        assert_eq!(found[0].1, "line 1\nline 3\nline 4\nline 5\n");
        assert!(found[1].1.contains("line 24\nnew\n+ x\nline 26\n"), "{found:?}");
    }

    #[test]
    fn what_is_cut_or_none_has_no_hunks() {
        for text in [
            "",
            "done",
            "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x\n[... 3 bytes left out ...]\n+y\n",
            "--- a\n+++ a\n-x\n",
        ] {
            assert!(hunks(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn hunks_are_parts_of_the_texts(before in "([a-c]\n){0,12}", after in "([a-c]\n){0,12}") {
            let text = agent::difference("f", before.as_bytes(), after.as_bytes());
            for (old, new) in hunks(&text).unwrap_or_default() {
                prop_assert!(before.contains(&old) && after.contains(&new));
                prop_assert!(old != new);
            }
        }
    }
}
