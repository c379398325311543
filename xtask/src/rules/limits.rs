//! Names of limits begin with `MAX` or `MIN`, so that a search for these words finds all of them.

use super::Problem;
use crate::tree::Tree;

/// Words that no name of a constant has.
const SUPERLATIVES: [&str; 12] = [
    "MOST", "LEAST", "LONGEST", "SHORTEST", "LARGEST", "SMALLEST", "HIGHEST", "LOWEST", "GREATEST",
    "FEWEST", "DEEPEST", "BIGGEST",
];
/// Extensions of files with code.
const CODE: [&str; 5] = ["rs", "wgsl", "js", "mjs", "py"];

/// Finds other names of limits where they are defined.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in CODE.iter().flat_map(|extension| tree.with_extension(extension)) {
        let text = if file.path.ends_with(".rs") { &file.code } else { &file.text };
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = constant(line).filter(|name| is_superlative(name)) {
                let what = format!("{name} is a limit: MAX or MIN is the word");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
    }
    problems
}

/// The constant that a line defines.
fn constant(line: &str) -> Option<&str> {
    let is_name = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    let words = || line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let declared = words().skip_while(|word| !["const", "static"].contains(word)).nth(1);
    // Python has no keyword.
    let assigned = line.split_once(" = ").map(|(name, _)| name);
    declared.or(assigned).filter(is_name)
}

fn is_superlative(name: &str) -> bool {
    name.split('_').any(|part| SUPERLATIVES.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[&str]) {
        let problems = super::check(&Tree::of(&[(path, text)]));
        let names: Vec<_> =
            problems.iter().filter_map(|found| found.what.split(' ').next()).collect();
        assert_eq!(names, expected, "{text}");
    }

    #[test]
    fn limits_with_other_names_are_found() {
        check("a.rs", "pub(crate) const MOST_ROWS: usize = 1;", &["MOST_ROWS"]);
        check(
            "a.rs",
            "    const LONGEST: u8 = 2;\nstatic ROWS_LEAST: u8 = 1;",
            &["LONGEST", "ROWS_LEAST"],
        );
        check("a.wgsl", "const MOST = 2u;", &["MOST"]);
        check("a.js", "export const LARGEST_FILE = 2;", &["LARGEST_FILE"]);
        check("a.py", "LEAST = 2", &["LEAST"]);
    }

    #[test]
    fn other_names_and_words_are_left_alone() {
        check("a.rs", "const MAX_ROWS: u8 = 1;\n// const MOST: u8\nlet most = MOST;", &[]);
        check("a.rs", "const ALMOST: u8 = 1;\nconst fn least() {}\nenum Most { A }", &[]);
        check("a.md", "const MOST = 1;", &[]);
    }
}
