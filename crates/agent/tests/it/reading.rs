//! What `read`, `list` and `search` show, and that results fit.

use crate::support::{Place, assert_has};
use agent::{MAX_RESULT_BYTES, TOOLS};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn reading_shows_numbers_and_where_to_continue() {
    let mut place = Place::new();
    place.put("f", b"\xef\xbb\xbfone\r\ntwo\x1b[0m\r\n\xe9\r\n4");
    let text = place.text("read", json!({"path": "f", "lines": 3}));
    let expected = "f: lines 1-3 of 4\n1\tone\n2\ttwo\\x1b[0m\n3\t\\xe9\n\
        [more from line 4]\n";
    assert_eq!(text, expected);
    let text = place.text("read", json!({"path": "f", "from": 4, "lines": null}));
    assert_eq!(text, "f: lines 4-4 of 4\n4\t4\n");
    assert_has(&place.error("read", json!({"path": "f", "from": 5})), &["f has 4 lines"]);
    place.put("empty", "");
    assert_eq!(place.text("read", json!({"path": "empty"})), "empty: empty\n");
}

#[test]
fn all_lines_of_a_long_file_can_be_read() {
    let mut place = Place::new();
    let line = |number: usize| format!("{number} {}", "é".repeat(number * 37 % 400));
    let lines: Vec<String> = (1..=900).map(line).collect();
    place.put("f", lines.join("\n") + "\n");
    let (mut from, mut shown) = (1, Vec::new());
    loop {
        let text = place.text("read", json!({"path": "f", "from": from}));
        assert!(text.len() <= MAX_RESULT_BYTES);
        let rows = text.lines().filter_map(|row| row.split_once('\t'));
        shown.extend(rows.map(|(_, line)| line.to_owned()));
        let Some(next) = text.lines().last().unwrap().strip_prefix("[more from line ") else {
            break;
        };
        from = next.trim_end_matches(']').parse().unwrap();
    }
    assert_eq!(shown, lines);
}

#[test]
fn a_line_longer_than_a_result_is_cut_and_not_known() {
    let mut place = Place::new();
    place.put("f", format!("{}\nlast\n", "é".repeat(MAX_RESULT_BYTES)));
    let text = place.text("read", json!({"path": "f"}));
    assert!(text.len() <= MAX_RESULT_BYTES);
    assert_has(&text, &["bytes of this line left out", "2\tlast"]);
    let text = place.error("edit", json!({"path": "f", "lines": "1", "new": "x"}));
    assert_has(&text, &["was not shown"]);
}

#[test]
fn a_long_path_leaves_its_lines_in_the_result() {
    let mut place = Place::new();
    let path = vec!["d".repeat(250); 4].join("/");
    place.put(&path, "line\n".repeat(200));
    place.workspace.set_limit(1024);
    let text = place.text("read", json!({"path": path}));
    assert!(text.len() <= 1024, "{}", text.len());
    let last = text.lines().rev().find_map(|row| row.strip_suffix("\tline")).unwrap().trim();
    place.text("edit", json!({"path": path, "lines": last, "new": "new"}));
    let next = (last.parse::<u32>().unwrap() + 1).to_string();
    let text = place.error("edit", json!({"path": path, "lines": next, "new": "new"}));
    assert_has(&text, &["was not shown"]);
}

#[test]
fn files_above_the_limit_are_refused() {
    let mut place = Place::new();
    place.put("f", vec![b'\n'; (16 << 20) + 1]);
    assert_has(&place.error("read", json!({"path": "f"})), &["more than 16 MiB"]);
    place.put("f", vec![b'\n'; 16 << 20]);
    place.text("read", json!({"path": "f"}));
}

#[test]
fn lists_leave_out_what_git_ignores() {
    let mut place = Place::new();
    place.put(".gitignore", "out\n");
    place.put("out/x", "");
    place.put("src/deep/y", "12345");
    place.put(".git/config", "");
    symlink("src", place.path("link")).unwrap();
    let text = place.text("list", json!({"path": ".", "depth": null}));
    let expected = ".: 3 entries\nfile            4 .gitignore\nlink            - link -> src\n\
        folder          - src/\n";
    assert_eq!(text, expected);
    let text = place.text("list", json!({"path": "src", "depth": 2}));
    assert_has(&text, &["src/deep/\n", "file            5 src/deep/y\n"]);
    assert_has(&place.error("list", json!({"path": ".gitignore"})), &["is no folder"]);
}

#[test]
fn long_lists_say_how_many_entries_follow() {
    let mut place = Place::new();
    (0..305).for_each(|number| place.put(&format!("f{number:03}"), ""));
    let text = place.text("list", json!({"path": "."}));
    assert_has(&text, &["300 entries", "f299\n", "[5 more entries"]);
    assert!(!text.contains("f300"));
}

fn search(place: &mut Place, pattern: &str, more: Value) -> String {
    let mut arguments = json!({"pattern": pattern});
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    place.text("search", arguments)
}

#[test]
fn searches_show_lines_that_can_then_be_edited() {
    let mut place = Place::new();
    place.put("a/x.rs", "one\ntwo (1)\nthree\nfour\n");
    place.put("a/y.py", "two (1)\r\n");
    place.put("b/z.rs", "zwei\n");
    place.put("bin", b"two (1)\0");
    let text = search(&mut place, "(?i)TWO", json!({}));
    assert_eq!(text, "2 matches\na/x.rs:2: two (1)\na/y.py:1: two (1)\n");
    let text =
        search(&mut place, "two (1)", json!({"literal": true, "glob": "*.rs", "context": 1}));
    assert_eq!(text, "1 match\na/x.rs-1- one\na/x.rs:2: two (1)\na/x.rs-3- three\n");
    assert_eq!(
        search(&mut place, "^two \\(1\\)$", json!({"path": "a/y.py"})),
        "1 match\na/y.py:1: two (1)\n"
    );
    assert_eq!(search(&mut place, "w", json!({"glob": "b/*.rs"})), "1 match\nb/z.rs:1: zwei\n");
    assert_eq!(search(&mut place, "nothing", json!({})), "no matches\n");
    place.text("edit", json!({"path": "a/x.rs", "lines": "2:3", "new": "2"}));
    assert_eq!(place.bytes("a/x.rs"), b"one\n2\nfour\n");
    assert_has(&place.error("search", json!({"pattern": "("})), &["no regular expression"]);
}

#[test]
fn searches_end_at_their_limits() {
    let mut place = Place::new();
    place.put("f", "x\n".repeat(600));
    let count = |text: String| text.lines().filter(|row| row.starts_with("f:")).count();
    assert_has(&search(&mut place, "x", json!({})), &["50 matches", "there are more"]);
    assert_eq!(count(search(&mut place, "x", json!({"max": 1000}))), 500);
    place.put("f", "x\n".repeat(50));
    assert!(!search(&mut place, "x", json!({})).contains("there are more"));
    place.put("g", format!("{}z\n", "y".repeat(400)).repeat(400));
    let text = search(&mut place, "z", json!({"max": 500}));
    assert!(text.len() <= MAX_RESULT_BYTES);
    assert_has(&text, &["there are more", &format!("g:1: {} [...]\n", "y".repeat(300))]);
    let text = place.error("edit", json!({"path": "g", "lines": "1", "new": "x"}));
    assert_has(&text, &["was not shown"]);
}

#[test]
fn results_fit_their_limit_and_the_whole_is_in_a_file() {
    for (limit, count) in [(1 << 10, 500), (MAX_RESULT_BYTES, 9000), (4000, 70_000)] {
        let mut place = Place::new();
        place.workspace.set_limit(limit);
        let command = format!("for i in $(seq {count}); do echo \"$i é\"; done");
        let text = place.text("bash", json!({"command": command}));
        assert!(text.len() <= limit, "{} > {limit}", text.len());
        assert_has(&text, &["\n1 é\n", &format!("\n{count} é\n"), "bytes left out"]);
        let path = text.split("the whole is in ").nth(1).unwrap().split(" ...]").next().unwrap();
        let whole = fs::read_to_string(path).unwrap();
        assert_eq!(whole.lines().count(), count);
        // What is shown are whole lines, and the rest is counted.
        let rows = text.lines().filter(|row| !row.starts_with('['));
        let shown: usize = rows.map(|row| row.len() + 1).sum();
        assert_has(&text, &[&format!("[... {} bytes left out", whole.len() - shown)]);
        assert!(text.lines().all(|row| row.starts_with('[') || row.ends_with(" é")));
    }
}

#[test]
fn long_differences_fit_and_are_kept_whole() {
    let mut place = Place::new();
    place.put("f", "line\n".repeat(5000));
    let write: String = (0..5000).map(|number| format!("other {number}\n")).collect();
    let old = "line\n".repeat(5000);
    let text = place.text("edit", json!({"path": "f", "old": old, "new": write}));
    assert!(text.len() <= MAX_RESULT_BYTES);
    assert_has(&text, &["result-1.txt", "@@ -1,5000 +1,5000 @@", "+other 4999"]);
    let whole = fs::read_to_string(place.temporary().join("result-1.txt")).unwrap();
    assert_eq!(whole.lines().count(), 10_003);
}

#[test]
fn schemas_are_strict() {
    for tool in TOOLS {
        let schema = (tool.schema)();
        let members = schema["properties"].as_object().unwrap();
        let required: Vec<&str> = schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert!(members.keys().eq(required), "{}", tool.name);
        assert_eq!(schema["additionalProperties"], false);
        // A call with all members that may be null is one that the tool takes.
        let nullable = members.iter().filter(|(_, member)| member["type"].is_array());
        for (name, _) in nullable {
            let error = (tool.run)(&mut Place::new().workspace, json!({ name: null })).unwrap_err();
            assert!(error.to_string().contains("missing field"), "{}: {error}", tool.name);
        }
    }
}
