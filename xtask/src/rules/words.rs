//! Documents use none of the words of `docs/banned-words.txt`: they have a plainer form, which
//! `docs/glossary.md` has.

use super::Problem;
use crate::tree::{SourceFile, Tree};

const LIST: &str = "docs/banned-words.txt";
/// Documents beside those below `docs`.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// A word of a document with its line, or a mark that no phrase goes across.
type Word = (usize, String);

/// Finds the phrases of the list in documents and in the documentation of items.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(list) = tree.file(LIST) else { return vec![Problem::new(LIST, 1, "no such file")] };
    let phrases = phrases(&list.text);
    let mut problems = Vec::new();
    for file in &tree.files {
        let Some(words) = words_of(file) else { continue };
        for phrase in &phrases {
            let found = words
                .windows(phrase.len())
                .filter(|run| run.iter().zip(phrase).all(|((_, word), banned)| word == banned));
            let what = || format!("\"{}\" is a word of {LIST}", phrase.join(" "));
            problems.extend(found.map(|run| Problem::new(&file.path, run[0].0, what())));
        }
    }
    problems
}

/// One phrase a line; `#` begins a comment.
fn phrases(list: &str) -> Vec<Vec<String>> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or("").to_lowercase());
    let phrases = lines.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    phrases.filter(|phrase| !phrase.is_empty()).collect()
}

/// The words of a document, or of the documentation in a Rust file.
fn words_of(file: &SourceFile) -> Option<Vec<Word>> {
    let is_document = DOCUMENTS.contains(&file.path.as_str())
        || file.path.starts_with("docs/") && file.path.ends_with(".md");
    let mut words = Vec::new();
    let mut fenced = false;
    for (index, line) in file.text.lines().enumerate() {
        let text = match (is_document, file.path.ends_with(".rs")) {
            (true, _) => Some(line),
            (_, true) => documentation(line),
            _ => return None,
        };
        let fence = text.is_some_and(|text| text.trim_start().starts_with("```"));
        fenced ^= fence;
        match text.filter(|text| !fenced && !fence && !text.trim().is_empty()) {
            Some(text) => split(text, index + 1, &mut words),
            None => words.push((index + 1, String::new())),
        }
    }
    Some(words)
}

fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
}

/// Adds the words of a line in lower case; code and punctuation become marks.
fn split(text: &str, line: usize, words: &mut Vec<Word>) {
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            words.push((line, String::new()));
            continue;
        }
        for piece in part.split_inclusive(|c: char| !c.is_alphanumeric() && c != '\'' && c != '-') {
            let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
            let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
            if !word.is_empty() {
                words.push((line, word.to_lowercase()));
            }
            if piece.ends_with(|c: char| ".,;:()[]|*\"".contains(c)) {
                words.push((line, String::new()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[(usize, &str)]) {
        let list = "# a comment\nnobody\nthose that # another\n";
        let problems = super::check(&Tree::of(&[(LIST, list), (path, text)]));
        let expected: Vec<_> = expected
            .iter()
            .map(|(line, word)| {
                Problem::new(path, *line, format!("\"{word}\" is a word of docs/banned-words.txt"))
            })
            .collect();
        assert_eq!(problems, expected, "{text}");
    }

    #[test]
    fn banned_words_are_found_in_documents_and_in_documentation() {
        check("README.md", "# A\nNobody knows.\n", &[(2, "nobody")]);
        check("docs/a/b.md", "of those\nthat wait", &[(1, "those that")]);
        check("crates/a/src/lib.rs", "/// For those that\n/// wait.\n", &[(1, "those that")]);
        check("crates/a/src/lib.rs", "//! A.\n    //! Nobody.\n", &[(2, "nobody")]);
    }

    #[test]
    fn code_other_words_and_other_files_are_left_alone() {
        check("README.md", "`nobody` busybody\n```\nnobody\n```\nthose, that; those\n\nthat", &[]);
        check("crates/a/src/lib.rs", "// nobody\nlet nobody = 1;\n", &[]);
        check("tests/a.md", "nobody", &[]);
    }
}
