//! Laws of the table of families.

use formats::config::{KnownField, known_fields};
use std::path::{Path, PathBuf};

use formats::families;

/// Files in which the same words name tokenizers, as GGUF files do, and not families.
const TOKENIZERS: [&str; 5] = [
    "/text/src/",
    "/gguf/pre_tokenizer.rs",
    "/quantize/pre.rs",
    "/quantize/sentence_piece.rs",
    "/quantize/vocabulary.rs",
];

/// Shapes of published models say which family they are of.
const SHAPES: &str = "/synth/";

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without comments and tests.
fn production_code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let is_test_module = |at: &usize| text[*at..].lines().nth(1).is_some_and(|l| l.ends_with('{'));
    let tests = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(is_test_module);
    let code = &text[..tests.unwrap_or(text.len())];
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn family_names_appear_in_one_file() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    let mut own = 0;
    for path in files {
        let file = path.to_string_lossy().replace('\\', "/");
        if is_test(&file) || file.contains(SHAPES) || TOKENIZERS.iter().any(|t| file.contains(t)) {
            continue;
        }
        let code = production_code(&path);
        for name in families::names().filter(|name| code.contains(&format!("\"{name}\""))) {
            assert!(file.ends_with(&format!("/families/{name}.rs")), "{file} names {name}");
            own += 1;
        }
    }
    assert_eq!(own, families::names().count(), "a family is named in its file");
}

/// The table of fields, as the page has it.
fn table_of_fields() -> String {
    let code = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let row = |field: KnownField| {
        let KnownField { about, config_json, gguf, values, .. } = field;
        format!("| {about} | {} | {} | {values} |\n", code(config_json), code(gguf))
    };
    let rows: String = known_fields().map(row).collect();
    format!("| what | config.json | GGUF metadata | values |\n|---|---|---|---|\n{rows}")
}

#[test]
fn the_page_on_families_has_the_table_of_known_fields() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/add-a-model.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = table_of_fields();
    assert!(page.contains(&table), "docs/add-a-model.md lacks this table:\n{table}");
}
