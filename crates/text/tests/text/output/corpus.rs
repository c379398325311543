//! The seeds and finds of the fuzzer of model output, replayed.

use crate::output::{form, join, read};
use std::path::Path;
use text::{OutputEvent, ToolFormat};

#[test]
fn seeds_of_output_read_the_same_however_they_are_cut() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/output");
    let mut calls = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let Some((&first, rest)) = bytes.split_first() else { continue };
        let format = usize::from(first) % 32 % ToolFormat::ALL.len();
        let format = ToolFormat::ALL.iter().rev().nth(format);
        let form = form(format.unwrap());
        let answer = String::from_utf8_lossy(rest);
        let chars: Vec<String> = answer.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        let whole = read(&form, &[&answer], false);
        assert_eq!(whole, read(&form, &chars, false), "{}", path.display());
        let mut joined = Vec::new();
        join(&mut joined, whole.clone());
        calls += joined.iter().filter(|event| **event == OutputEvent::CallEnd).count();
    }
    assert!(calls >= ToolFormat::ALL.len(), "too few calls in {}", folder.display());
}
