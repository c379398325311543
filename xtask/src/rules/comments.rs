//! Comment lines end where code does, at column 100.

use super::Problem;
use crate::tree::Tree;

const COLUMNS: usize = 100;

/// Finds longer comment lines.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.with_extension("rs") {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if line.trim_start().starts_with("//") && columns > COLUMNS {
                let what = format!("a comment of {columns} columns (at most {COLUMNS})");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_may_have_100_columns_and_no_more() {
        let text = format!("{}\n  {}\n{}x\n", "/".repeat(100), "/".repeat(99), "é".repeat(200));
        let problems = check(&Tree::of(&[("a.rs", &text)]));
        assert_eq!(problems, [Problem::new("a.rs", 2, "a comment of 101 columns (at most 100)")]);
    }
}
