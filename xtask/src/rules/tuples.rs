//! A parameter is no tuple where two calls pass the same one: what is passed together again and
//! again is two parameters, or a thing that deserves a name and a type.
//!
//! Calls are found by the name of the function, in the folder of its file and in the file of the
//! module around it.

use super::Problem;
use crate::rust::without_tests;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// A function with parameters that are tuples.
struct Tupled<'a> {
    name: &'a str,
    /// Where its `fn` is.
    at: usize,
    /// Parameters without `self`, and those of them that are tuples.
    parameters: usize,
    tuples: Vec<usize>,
}

/// Finds tuples that two calls of a function pass in the same words.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let sources = tree.sources().filter(|file| !is_test(&file.path));
    let files = sources.map(|file| (file.path.as_str(), without_tests(&file.code)));
    let files: Vec<_> = files.collect();
    let mut problems = Vec::new();
    for (path, code) in &files {
        for function in tupled(code) {
            let near = files.iter().filter(|(other, _)| is_near(other, path));
            for (tuple, calls) in passed(&function, near.map(|(_, code)| code.as_str())) {
                if calls > 1 {
                    let name = function.name;
                    let what = format!("{calls} calls of {name} pass the tuple {tuple}");
                    let line = code[..function.at].matches('\n').count() + 1;
                    problems.push(Problem::new(path, line, what));
                }
            }
        }
    }
    problems
}

/// Whether `other` is in the folder of `path`, or the module of that folder.
fn is_near(other: &str, path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    other.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

fn tupled(code: &str) -> Vec<Tupled<'_>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(0);
        let (name, rest) = rest.split_at(end);
        let Some(open) = rest.find('(').filter(|_| !name.is_empty()) else { continue };
        let mut parameters = arguments(&rest[open + 1..]);
        parameters.retain(|parameter| !is_self(parameter));
        let tuples = (0..parameters.len()).filter(|&i| is_tuple(parameters[i])).collect::<Vec<_>>();
        if !tuples.is_empty() {
            found.push(Tupled { name, at, parameters: parameters.len(), tuples });
        }
    }
    found
}

fn is_self(parameter: &str) -> bool {
    parameter.split(|c: char| !c.is_alphanumeric()).any(|word| word == "self")
}

/// Whether the type of a parameter is a tuple. A tuple in a generic type is none.
fn is_tuple(parameter: &str) -> bool {
    let after_pattern = match parameter.starts_with('(') {
        true => parameter.rfind("):").map(|at| &parameter[at + 2..]),
        false => parameter.split_once(':').map(|(_, ty)| ty),
    };
    let ty = after_pattern.unwrap_or("").trim_start().trim_start_matches(['&', ' ']);
    let ty = ty.strip_prefix("mut ").unwrap_or(ty);
    ty.starts_with('(') && ty.contains(',') && !ty.starts_with("(impl ") && !ty.starts_with("(dyn ")
}

/// The tuples that calls of `function` pass, each with the number of calls.
fn passed<'a>(
    function: &Tupled<'_>,
    files: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, usize> {
    let call = format!("{}(", function.name);
    let mut counts = BTreeMap::new();
    for code in files {
        for (at, _) in code.match_indices(&call) {
            let before = &code[..at];
            let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if in_word || before.ends_with("fn ") {
                continue;
            }
            let given = arguments(&code[at + call.len()..]);
            if given.len() != function.parameters {
                continue;
            }
            let tuples = function.tuples.iter().map(|&index| given[index]);
            for tuple in tuples.filter(|given| given.starts_with('(') && !has_literal(given)) {
                let words: Vec<_> = tuple.split_whitespace().collect();
                *counts.entry(words.join(" ")).or_default() += 1;
            }
        }
    }
    counts
}

/// Whether an element of a tuple is a literal, which is blank in code, so that two may differ.
fn has_literal(tuple: &str) -> bool {
    tuple.trim_matches(['(', ')']).split(',').any(|element| element.trim().is_empty())
}

/// The arguments or parameters at the beginning of `text`, up to the parenthesis that closes them.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0, 0);
    let mut found = Vec::new();
    for (at, c) in text.char_indices() {
        let closes = c == ')' && depth == 0;
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if closes || c == ',' && depth == 0 {
            found.push(text[start..at].trim());
            start = at + 1;
        }
        if closes {
            break;
        }
    }
    found.retain(|argument| !argument.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let problems = super::check(&Tree::of(files));
        let found: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_tuple_that_two_calls_pass_is_found() {
        let code = "fn a(x: u8, (b, c): (u8, u8)) {}\nfn d() { a(1, (b, c)); a(2, (b,  c)); }";
        check(&[("crates/x/src/a.rs", code)], &["2 calls of a pass the tuple (b, c)"]);
        let method = "impl X { fn a(&self, at: (u8, u8)) {} }\nfn d() { x.a((b, c)); }";
        let other = "fn e() { y.a((b, c)) }";
        let files = [("crates/x/src/m/a.rs", method), ("crates/x/src/m.rs", other)];
        check(&files, &["2 calls of a pass the tuple (b, c)"]);
    }

    #[test]
    fn other_tuples_tests_and_far_functions_are_left_alone() {
        check(
            &[("crates/x/src/a.rs", "fn a(x: (u8, u8)) {}\nfn d() { a((b, c)); a((c, b)); }")],
            &[],
        );
        let literals = "fn a(x: (&str, u8)) {}\nfn d() { a((\"b\", 1)); a((\"c\", 1)); }";
        check(&[("crates/x/src/a.rs", literals)], &[]);
        check(&[("crates/x/src/a.rs", "fn a(x: u8) {}\nfn d() { a((b)); a((b)); }")], &[]);
        let tests =
            "fn a(x: (u8, u8)) {}\n#[cfg(test)]\nmod tests { fn d() { a((b, c)); a((b, c)); } }";
        check(&[("crates/x/src/a.rs", tests)], &[]);
        let files = [
            ("crates/x/src/m/a.rs", "fn a(x: (u8, u8)) {}\nfn d() { a((b, c)); }"),
            ("crates/x/src/n.rs", "fn d() { a((b, c)) }"),
        ];
        check(&files, &[]);
    }
}
