//! The documentation of a public function that returns a `Result` names the causes of its errors,
//! in a section `# Errors`.
//!
//! The crate `cli` is a program, whose functions no other crate calls.

use super::Problem;
use crate::rust::without_tests;
use crate::tree::{SourceFile, Tree};

const PROGRAM: &str = "crates/cli/";

/// Finds such functions of libraries whose documentation has no such section.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let is_library = |path: &str| !path.starts_with(PROGRAM) && !path.ends_with("tests.rs");
    let files = tree.sources().filter(|file| is_library(&file.path));
    files.flat_map(problems).collect()
}

fn problems(file: &SourceFile) -> Vec<Problem> {
    let code = without_tests(&file.code);
    let (code, text): (Vec<_>, Vec<_>) = (code.lines().collect(), file.text.lines().collect());
    let mut problems = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let Some(name) = public_function(line) else { continue };
        if is_fallible(&code[index..]) && !has_section(&text[..index]) {
            let what = format!("the documentation of {name} has no section # Errors");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
    }
    problems
}

/// The name of the public function that begins on `line`.
fn public_function(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().strip_prefix("pub ")?.split_once("fn ")?;
    let qualifiers = ["async", "const", "unsafe"];
    let is_function = before.split_whitespace().all(|word| qualifiers.contains(&word));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    is_function.then_some(&rest[..end])
}

/// Whether a `Result` is in the type that the function returns whose signature begins `lines`.
fn is_fallible(lines: &[&str]) -> bool {
    let is_last = |line: &&str| line.trim_end().ends_with(['{', '}', ';']);
    let last = lines.iter().position(is_last).unwrap_or(0);
    let signature = lines[..=last].join(" ");
    let returned = signature.rsplit_once("->").map_or("", |(_, returned)| returned);
    returned.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "Result")
}

/// Whether the documentation that ends `lines` has the section.
fn has_section(lines: &[&str]) -> bool {
    let lines = lines.iter().rev().map(|line| line.trim_start());
    let mut above = lines.take_while(|line| line.starts_with("///") || line.starts_with("#["));
    above.any(|line| line == "/// # Errors")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let problems = super::check(&Tree::of(&[("crates/a/src/a.rs", text)]));
        let names: Vec<_> =
            problems.iter().filter_map(|found| found.what.split(' ').nth(3)).collect();
        assert_eq!(names, expected, "{text}");
    }

    #[test]
    fn fallible_functions_without_the_section_are_found() {
        check("/// Reads.\npub fn read() -> io::Result<u8> {", &["read"]);
        check("pub async fn read(\n    a: [u8; 2],\n) -> Option<Result<u8>> {", &["read"]);
        check(
            "/// # Errors\n/// Never.\npub fn a() -> Result<()> {}\n\npub fn b() -> Result {}",
            &["b"],
        );
    }

    #[test]
    fn other_functions_are_left_alone() {
        check(
            "/// Reads.\n///\n/// # Errors\n/// If not.\n#[must_use]\npub fn a() -> Result<u8> {",
            &[],
        );
        check("fn a() -> Result<u8> {}\npub(crate) fn b() -> Result<u8> {}", &[]);
        check("pub fn a(f: impl Fn() -> Result<u8>) -> u8 {\n    b()\n}", &[]);
        check("#[cfg(test)]\nmod tests {\n    pub fn a() -> Result<u8> {}\n}", &[]);
        let program = Tree::of(&[("crates/cli/src/a.rs", "pub fn a() -> Result<u8> {}")]);
        assert_eq!(super::check(&program), []);
    }
}
