//! Lines of documents end where code does, at column 100.
//!
//! Rows of tables are exempt, since Markdown cannot continue them on the next line, and so are
//! lines of one word, such as a long address.

use super::Problem;
use crate::tree::Tree;

const MAX_COLUMNS: usize = 100;

/// Finds longer lines in Markdown files.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.with_extension("md") {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !line.starts_with('|') && line.trim().contains(' ') {
                let what = format!("a line of {columns} columns (at most {MAX_COLUMNS})");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[Problem]) {
        assert_eq!(super::check(&Tree::of(&[("docs/a.md", text)])), expected);
    }

    #[test]
    fn lines_may_have_100_columns_and_no_more() {
        let long = Problem::new("docs/a.md", 2, "a line of 101 columns (at most 100)");
        check(&format!("{} é\n{} é\n", "é".repeat(98), "é".repeat(99)), &[long]);
    }

    #[test]
    fn tables_and_single_words_are_exempt() {
        let wide = "x".repeat(120);
        check(
            &format!("| {wide} | {wide} |\n- https:{wide}\n"),
            &[Problem::new("docs/a.md", 2, "a line of 128 columns (at most 100)")],
        );
        check(&format!("| {wide} | {wide} |\nhttps:{wide}\n"), &[]);
    }
}
