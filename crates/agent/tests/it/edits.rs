//! What `edit` and `write` do to the bytes of files.

use crate::support::{Place, assert_has};
use proptest::prelude::*;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A file around a passage of some lines.
#[derive(Debug)]
struct Around {
    before: Vec<u8>,
    after: Vec<u8>,
    old: Vec<&'static str>,
    new: Vec<&'static str>,
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        Just(&b"}"[..]),
        Just(&b""[..]),
        Just(&b"  x = 1"[..]),
        Just(&b"caf\xe9"[..]),
        Just("größe\r".as_bytes()),
        Just(&b"\t"[..])
    ];
    let end = prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..])];
    (text, end).prop_map(|(text, end)| [text, end].concat())
}

fn around() -> impl Strategy<Value = Around> {
    let lines = || prop::collection::vec(line(), 0..12).prop_map(|lines| lines.concat());
    let words = || prop::collection::vec(prop::sample::select(vec!["a", "b", "}", ""]), 0..4);
    (any::<bool>(), lines(), lines(), words(), words()).prop_map(
        |(mark, before, after, old, new)| {
            let before = [if mark { &b"\xef\xbb\xbf"[..] } else { b"" }, &before].concat();
            Around { before, after, old, new }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn edits_keep_all_other_bytes(
        file in around(),
        end in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let mut place = Place::new();
        let passage = |lines: &[&str], end: &str| ["<one>", &lines.join(end), "<two>"].join(end);
        let old = passage(&file.old, end);
        place.put("f", [&file.before[..], old.as_bytes(), &file.after].concat());
        let new = file.new.join("\n") + "!";
        place.text("edit", json!({"path": "f", "old": passage(&file.old, "\n"), "new": new}));
        let bytes = place.bytes("f");
        prop_assert!(bytes.starts_with(&file.before));
        prop_assert!(bytes.ends_with(&file.after));
        let middle = &bytes[file.before.len()..bytes.len() - file.after.len()];
        let middle = String::from_utf8(middle.to_owned()).unwrap();
        prop_assert_eq!(middle.replace("\r\n", "\n"), new);
    }

    #[test]
    fn lines_that_are_repeated_keep_their_ends(ends in prop::collection::vec(any::<bool>(), 5)) {
        let mut place = Place::new();
        let end = |long: &bool| if *long { "\r\n" } else { "\n" };
        let lines: Vec<String> =
            (0..5).zip(&ends).map(|(at, long)| format!("line {at}{}", end(long))).collect();
        place.put("f", lines.concat());
        let old = "line 0\nline 1\nline 2\nline 3\nline 4\n";
        let new = old.replace("line 2", "changed");
        place.text("edit", json!({"path": "f", "old": old, "new": new}));
        let most = if ends.iter().filter(|long| **long).count() > 2 { "\r\n" } else { "\n" };
        let expected = lines.concat().replace(&lines[2], &format!("changed{most}"));
        prop_assert_eq!(String::from_utf8(place.bytes("f")).unwrap(), expected);
    }
}

/// How an edit names the passage.
#[derive(Clone, Copy, Debug)]
enum Named {
    Text,
    Lines,
    UpTo,
    Loose,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn edits_of_whole_lines_keep_all_other_bytes(
        file in around(),
        named in prop::sample::select(vec![Named::Text, Named::Lines, Named::UpTo, Named::Loose]),
        has_end in any::<bool>(),
    ) {
        let mut place = Place::new();
        let inner = file.old.concat();
        let old = format!("<one>\n {inner}\n<two>");
        // Where nothing follows, the last line may have no end.
        let is_last = !has_end;
        let after = if is_last { Vec::new() } else { [&b"\n"[..], &file.after].concat() };
        place.put("f", [&file.before[..], old.as_bytes(), &after].concat());
        let shown = place.text("read", json!({"path": "f"}));
        let row = |text: &str| {
            let row = shown.lines().find(|row| row.ends_with(text)).unwrap();
            row.split_once('\t').unwrap().0.trim().to_owned()
        };
        let new = "new\nlines\n";
        let edit = match named {
            Named::Text if is_last => json!({"path": "f", "old": old, "new": new.trim_end()}),
            Named::Text => json!({"path": "f", "old": old + "\n", "new": new}),
            Named::Lines => {
                let lines = format!("{}:{}", row("\t<one>"), row("\t<two>"));
                json!({"path": "f", "old": "", "lines": lines, "new": new})
            }
            Named::UpTo => json!({"path": "f", "old": "<one>\n[upto]\n<two>\n", "new": new}),
            Named::Loose => {
                let old = format!("  <one>\n{inner}\n\t<two>\n");
                json!({"path": "f", "old": old, "lines": "", "new": new})
            }
        };
        place.text("edit", edit);
        let bytes = place.bytes("f");
        prop_assert!(bytes.starts_with(&file.before));
        let rest = &bytes[file.before.len()..];
        let end = if is_last { "" } else { "\n" };
        let made = &rest[..rest.len() - file.after.len() * usize::from(!is_last)];
        let made = String::from_utf8(made.to_owned()).unwrap();
        prop_assert_eq!(made.replace("\r\n", "\n"), format!("new\nlines{end}"));
        prop_assert!(is_last || rest.ends_with(&file.after));
    }
}

/// Edits a file with `contents` and compares what it is then, or the error.
fn check(contents: &str, old: &str, new: &str, expected: Result<&str, &[&str]>) {
    let mut place = Place::new();
    place.put("f", contents);
    let result = place.call("edit", json!({"path": "f", "old": old, "new": new}));
    match expected {
        Ok(expected) => {
            result.unwrap();
            assert_eq!(String::from_utf8(place.bytes("f")).unwrap(), expected);
        }
        Err(parts) => {
            assert_has(&result.unwrap_err().to_string(), parts);
            assert_eq!(place.bytes("f"), contents.as_bytes());
        }
    }
}

#[test]
fn a_passage_must_occur_once() {
    check("a b c", "b", "x", Ok("a x c"));
    check("a\nb\nb\n", "b", "x", Err(&["occurs 2 times", "lines 2, 3"]));
    check("aaa", "aa", "x", Err(&["occurs 2 times", "lines 1, 1"]));
    check("a\n", "", "x", Err(&["old has no text"]));
    check("a\n", "a", "a", Err(&["would not change"]));
    check(&"a".repeat(1000), &"a".repeat(100), "x", Err(&["occurs 100 times"]));
}

#[test]
fn a_passage_that_differs_in_white_space_is_taken_only_if_it_is_the_only_one() {
    let file = "fn f() {\n\tlet x  = 1;   \n\treturn x;\n}\n";
    let old = "  let x = 1;\n  return x;\n";
    check(file, old, "\treturn 1;\n", Ok("fn f() {\n\treturn 1;\n}\n"));
    check(&file.repeat(2), old, "\treturn 1;\n", Err(&["occurs 2 times", "lines 2-3, 6-7"]));
    // The exact passage goes before others that differ in white space.
    check("\tx;\n  x;\n", "  x;\n", "y;\n", Ok("\tx;\ny;\n"));
    check("letx = 1;\n", "let x = 1;", "y", Err(&["does not occur"]));
}

#[test]
fn a_passage_that_differs_in_white_space_is_reported() {
    let mut place = Place::new();
    place.put("f", "\tx = 1\n");
    let text = place.text("edit", json!({"path": "f", "old": "    x = 1", "new": "    x = 2"}));
    assert_has(&text, &["equal but for white space", "-\tx = 1", "+    x = 2"]);
}

#[test]
fn upto_joins_head_and_tail() {
    let file = "fn f() {\n    a;\n    b;\n} // f\n\nfn g() {\n    a;\n}\n";
    check(
        file,
        "fn f() {\n[upto]\n} // f\n",
        "fn f() {}\n",
        Ok("fn f() {}\n\nfn g() {\n    a;\n}\n"),
    );
    // Also where nothing is between them.
    check("a\nb\nc\n", "a\n[upto]\nb\n", "x\n", Ok("x\nc\n"));
    // The tail is looked for after the head, and must be the only one there.
    check(file, "fn g() {\n[upto]\n    a;", "x", Ok(&file.replace("fn g() {\n    a;", "x")));
    check(file, "fn f() {\n[upto]\n    a;\n", "x", Err(&["occurs 2 times", "1-2, 1-7"]));
    check(file, "    a;\n[upto]\n}", "x", Err(&["head and tail"]));
    check(file, "fn h() {\n[upto]\n}", "x", Err(&["no head with a tail"]));
    check(file, "[upto]\n}", "x", Err(&["before and after the line [upto]"]));
    check(file, "a\n[upto]\nb\n[upto]\nc", "x", Err(&["more than one line [upto]"]));
    // White space may differ, and the line may be text.
    check("\ta\n b\nc\n", "  a\n[upto]\nc\n", "x\n", Ok("x\n"));
    check("a\n[upto]\nb\n b\n", "a\n[upto]\nb\n", "x\n", Ok("x\n b\n"));
}

#[test]
fn a_passage_that_does_not_occur_is_answered_with_the_nearest() {
    let mut place = Place::new();
    let file = "use std::fs;\n\nfn main() {\n    let name = first();\n    print(name);\n}\n";
    place.put("f", file);
    let old = "fn main() {\n    let nmae = first();\n    print(nmae);\n}\n";
    let text = place.error("edit", json!({"path": "f", "old": old, "new": "x"}));
    assert_has(&text, &["old does not occur in f", "3\tfn main() {\n", "6\t}\n"]);
    assert!(!text.contains("use std"));
    // These lines were shown, so that they can be edited by their numbers.
    place.text("edit", json!({"path": "f", "lines": "4:5", "new": "    run();"}));
    assert_eq!(place.bytes("f"), b"use std::fs;\n\nfn main() {\n    run();\n}\n");
    let text = place.error("edit", json!({"path": "f", "old": "zzzz qqqq", "new": "x"}));
    assert_has(&text, &["nor a passage like it"]);
}

#[test]
fn where_only_the_tail_is_missing_the_nearest_is_like_the_tail() {
    let mut place = Place::new();
    let file = "fn f() {\n    first(name);\n    second(name);\n    last(value);\n}\n";
    place.put("f", file);
    let old = "fn f() {\n[upto]\n    last(valeu);\n}\n";
    let text = place.error("edit", json!({"path": "f", "old": old, "new": "x"}));
    assert_has(&text, &["the head of old ends in line 1 of f, with no tail after it"]);
    assert_has(&text, &["4\t    last(value);\n5\t}\n"]);
    assert!(!text.contains("\tfn f()"), "{text}");
    place.text("edit", json!({"path": "f", "lines": "4", "new": "    done();"}));
    assert_eq!(place.bytes("f"), file.replace("last(value)", "done()").as_bytes());
}

#[test]
fn lines_that_did_not_fit_into_an_error_are_not_known() {
    let mut place = Place::new();
    let file = format!("fn f() {{\n{}\n}}\n", "long ".repeat(600));
    place.put("f", &file);
    place.workspace.set_limit(1024);
    let old = file.replace("fn f", "fn  g");
    let text = place.error("edit", json!({"path": "f", "old": old, "new": "x"}));
    assert_has(&text, &["1\tfn f() {\n", "[up to line 3]"]);
    assert!(text.len() <= 1024, "{text}");
    let text = place.error("edit", json!({"path": "f", "lines": "2", "new": "x"}));
    assert_has(&text, &["was not shown"]);
}

#[test]
fn a_change_whose_result_cannot_be_kept_is_not_made() {
    let mut place = Place::new();
    let file = "line\n".repeat(1000);
    place.put("f", &file);
    place.workspace.set_limit(1024);
    place.text("edit", json!({"path": "f", "old": file, "new": file.replace('i', "o")}));
    place.put("f", &file);
    fs::remove_dir_all(place.temporary()).unwrap();
    fs::write(place.temporary(), "no folder").unwrap();
    place.error("edit", json!({"path": "f", "old": file, "new": file.replace('i', "o")}));
    assert_eq!(place.bytes("f"), file.as_bytes());
}

#[test]
fn lines_that_were_not_shown_or_have_changed_are_refused() {
    let mut place = Place::new();
    place.put("f", "1\r\n2\r\n3\r\n4\r\n5\r\n");
    let edit = |lines: &str, new: &str| json!({"path": "f", "lines": lines, "new": new});
    assert_has(&place.error("edit", edit("2:3", "x")), &["line 2 of f was not shown"]);
    place.text("read", json!({"path": "f", "from": 2, "lines": 2}));
    assert_has(&place.error("edit", edit("3:4", "x")), &["line 4 of f was not shown"]);
    place.put("f", "1\r\n2\r\nthree\r\n4\r\n5\r\n");
    assert_has(&place.error("edit", edit("2:3", "x")), &["line 3 of f has changed"]);
    place.text("edit", edit("2", "two\nand more"));
    assert_eq!(place.bytes("f"), b"1\r\ntwo\r\nand more\r\nthree\r\n4\r\n5\r\n");
    // The lines after it have other numbers now; its own are known.
    assert_has(&place.error("edit", edit("4", "x")), &["line 4 of f was not shown"]);
    place.text("edit", edit("2:3", ""));
    assert_eq!(place.bytes("f"), b"1\r\nthree\r\n4\r\n5\r\n");
    for lines in ["0:1", "2:1", "x", "1:2:3", "-1", ""] {
        assert_has(&place.error("edit", edit(lines, "x")), &["lines must be a:b"]);
    }
    assert_has(&place.error("edit", edit("4:5", "x")), &["has 4 lines"]);
}

#[test]
fn lines_whose_numbers_an_edit_changed_are_refused() {
    let mut place = Place::new();
    place.put("f", "a\n}\n}\n}\n");
    place.text("read", json!({"path": "f"}));
    place.text("edit", json!({"path": "f", "old": "a\n", "new": "a\nb\n"}));
    // This line is not the one that was shown with this number, though it has its text.
    let text = place.error("edit", json!({"path": "f", "lines": "4", "new": "x"}));
    assert_has(&text, &["may have another number since an edit"]);
    place.text("edit", json!({"path": "f", "lines": "1:2", "new": "c"}));
}

#[test]
fn lines_after_an_edit_of_as_many_lines_stay_known() {
    let mut place = Place::new();
    place.put("f", "1\n2\n3\n");
    place.text("read", json!({"path": "f"}));
    place.text("edit", json!({"path": "f", "lines": "1:1", "new": "one"}));
    place.text("edit", json!({"path": "f", "lines": "3:3", "new": "three"}));
    assert_eq!(place.bytes("f"), b"one\n2\nthree\n");
}

#[test]
fn modes_links_and_other_names_stay() {
    let mut place = Place::new();
    place.put("real", "#!/bin/sh\n");
    fs::set_permissions(place.path("real"), Permissions::from_mode(0o751)).unwrap();
    symlink("real", place.path("link")).unwrap();
    place.text("edit", json!({"path": "link", "old": "/bin/sh", "new": "/bin/bash"}));
    place.text("write", json!({"path": "link", "content": "x"}));
    assert_eq!(place.bytes("real"), b"x");
    assert_eq!(fs::metadata(place.path("real")).unwrap().permissions().mode() & 0o777, 0o751);
    assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 2);
    fs::set_permissions(place.path("real"), Permissions::from_mode(0o444)).unwrap();
    assert_has(&place.error("write", json!({"path": "real", "content": "y"})), &["read-only"]);
    assert_has(
        &place.error("edit", json!({"path": "real", "old": "x", "new": "y"})),
        &["read-only"],
    );
}

#[test]
fn files_are_created_with_their_folders() {
    let mut place = Place::new();
    let output = place.call("write", json!({"path": "a/b/c", "content": "1\n2"})).unwrap();
    assert_eq!(output.text, "created a/b/c: 3 bytes, 2 lines");
    assert!(output.changed[0].path == "a/b/c");
    // What the model has written it knows.
    place.text("edit", json!({"path": "a/b/c", "lines": "2", "new": "two"}));
    assert_eq!(place.bytes("a/b/c"), b"1\ntwo");
    assert_has(&place.error("write", json!({"path": "a/b", "content": ""})), &["a/b is a folder"]);
    assert_has(&place.error("write", json!({"path": "a/c/", "content": ""})), &["of a folder"]);
    symlink("nowhere", place.path("link")).unwrap();
    let text = place.error("write", json!({"path": "link", "content": ""}));
    assert_has(&text, &["link to a file that does not exist"]);
}

#[test]
fn binary_files_and_wrong_arguments_are_refused() {
    let mut place = Place::new();
    place.put("f", b"a\0b");
    let edit = json!({"path": "f", "old": "a", "new": "x"});
    assert_has(&place.error("edit", edit), &["f is a binary file"]);
    let both = json!({"path": "f", "old": "a", "lines": "1:1", "new": "x"});
    place.put("f", "a");
    assert_has(&place.error("edit", both), &["either old or lines"]);
    assert_has(&place.error("edit", json!({"path": "f", "new": "x"})), &["either old or lines"]);
    assert_has(&place.error("edit", json!({"path": 1, "new": "x"})), &["edit", "path"]);
    let more = json!({"path": "f", "old": "a", "new": "x", "all": true});
    assert_has(&place.error("edit", more), &["unknown field `all`"]);
    assert_has(&place.error("read", json!({"path": "a\0b"})), &["zero byte"]);
    assert_has(&place.error("read", json!({"path": "nowhere"})), &["cannot read nowhere"]);
    assert_has(&place.error("read", json!({"path": "."})), &["is a folder"]);
}
