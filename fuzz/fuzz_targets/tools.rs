//! Any lines as requests to the process of the tools, over a folder of their own. This process is
//! not confined: commands, and paths that lead out of the folder, are left out.
#![no_main]

use agent::{CommandShell, Host, ToolAnswer, ToolWorkspace};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::fs;
use std::io::Cursor;
use std::path::{Component, Path};

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("temporary folders can be made");
    let [work, temporary] = ["work", "temporary"].map(|name| folder.path().join(name));
    fs::create_dir_all(work.join("b")).expect("folders can be made");
    fs::create_dir(&temporary).expect("folders can be made");
    fs::write(work.join("a"), "one\ntwo\nthree\n").expect("files can be written");
    let lines: Vec<&[u8]> = data.split_inclusive(|it| *it == b'\n').collect();
    let lines: Vec<&[u8]> = lines.into_iter().filter(|line| stays_inside(line)).collect();
    let shell = CommandShell::new(&temporary);
    let workspace = ToolWorkspace::open(&work, &temporary, shell).expect("the folders exist");
    let mut output = Vec::new();
    let served = Host::new(workspace).serve(Cursor::new(lines.concat()), &mut output);
    served.expect("nothing fails but the system");
    let answers: Result<Vec<ToolAnswer>, _> =
        serde_json::Deserializer::from_slice(&output).into_iter().collect();
    let calls = lines.iter().filter(|line| !is_cancellation(line)).count();
    assert_eq!(answers.expect("answers are JSON").len(), calls);
});

/// Whether a line starts no program, and all texts of its arguments, paths among them, stay inside
/// the folder.
fn stays_inside(line: &[u8]) -> bool {
    match serde_json::from_slice::<Value>(line) {
        Ok(value) => value["tool"] != "bash" && is_inside(&value["arguments"]),
        Err(_) => true,
    }
}

fn is_inside(value: &Value) -> bool {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    match value {
        Value::String(text) => Path::new(text).components().all(is_plain),
        Value::Array(values) => values.iter().all(is_inside),
        Value::Object(members) => members.values().all(is_inside),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn is_cancellation(line: &[u8]) -> bool {
    let value = serde_json::from_slice::<Value>(line).unwrap_or_default();
    let is_alone = value.as_object().is_some_and(|members| members.len() == 1);
    is_alone && value["cancel"].is_u64()
}
