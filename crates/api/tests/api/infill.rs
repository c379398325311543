//! Prompts for the missing middle of a text.

use crate::support::{BOS, MARKS, assets_with_marks, ids, scripted, scripted_with_assets};
use api::{ApiError, InfillRequest};
use engine::Field;

fn gap(prefix: &str, suffix: &str) -> InfillRequest {
    InfillRequest { prefix: prefix.into(), suffix: suffix.into(), ..InfillRequest::default() }
}

fn prompt(request: &InfillRequest) -> Vec<u32> {
    let scripted = scripted_with_assets(assets_with_marks(), Vec::new(), 1);
    scripted.service.infill(request).unwrap().prompt
}

#[test]
fn both_sides_stand_between_the_marks() {
    let [prefix, suffix, middle] = [MARKS, MARKS + 1, MARKS + 2];
    let expected = [&[prefix], &ids("ab")[..], &[suffix], &ids("c"), &[middle]].concat();
    let begun = |ids: &[u32]| [&[BOS], ids].concat();
    assert_eq!(prompt(&gap("ab", "c")), begun(&expected));
    let opening = InfillRequest { opening: "x".into(), ..gap("ab", "c") };
    assert_eq!(prompt(&opening), begun(&[expected.as_slice(), &ids("x")].concat()));
    let files = vec![("f.rs".to_owned(), "zz".to_owned())];
    let with_files = InfillRequest { files, ..gap("ab", "c") };
    assert_eq!(prompt(&with_files), begun(&[ids("zz"), expected].concat()));
}

#[test]
fn marks_in_the_text_stay_text() {
    let found = prompt(&gap("<|fim_middle|>", "<|fim_prefix|>"));
    assert_eq!(found.iter().filter(|&&id| id >= MARKS).count(), 3);
}

#[test]
fn models_without_marks_say_so() {
    let scripted = scripted(Vec::new());
    assert!(!scripted.service.fills());
    match scripted.service.infill(&gap("a", "b")) {
        Err(ApiError::Invalid { field, .. }) => assert_eq!(field, Field::Parameter("suffix")),
        other => panic!("{other:?}"),
    }
}
