//! A type name is defined at most twice, so that a reader knows which type is meant.

use super::Problem;
use crate::tree::Tree;
use std::collections::BTreeMap;

const MAX_DEFINITIONS: usize = 2;

/// Finds names that are defined more often.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut definitions = BTreeMap::<&str, Vec<(&str, usize)>>::new();
    for file in tree.sources() {
        for (index, line) in file.code.lines().enumerate() {
            if let Some(name) = defined(line).filter(|name| !is_excepted(name)) {
                definitions.entry(name).or_default().push((&file.path, index + 1));
            }
        }
    }
    definitions.retain(|_, places| places.len() > MAX_DEFINITIONS);
    let problem = |(name, places): (&str, Vec<(&str, usize)>)| {
        let all = places.iter().map(|(path, line)| format!("{path}:{line}")).collect::<Vec<_>>();
        let what = format!("{name} is defined {} times: {}", places.len(), all.join(", "));
        let (path, line) = places[0];
        Problem::new(path, line, what)
    };
    definitions.into_iter().map(problem).collect()
}

/// Names that every command or crate has, and those of the storage types' quantisers.
fn is_excepted(name: &str) -> bool {
    name == "Args" || name == "Error" || name.starts_with("Store")
}

/// The type that a line of code defines. Associated types are none.
pub(super) fn defined(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        };
    }
    rest = rest.trim_start();
    rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    (is_definition && name.starts_with(char::is_uppercase)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_defined_three_times_is_found_and_two_are_not() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub struct Plan;\nenum Kind {}\ntrait T { type Item; }"),
            ("crates/b/src/lib.rs", "pub(crate) enum Plan<T> {}\nstruct Kind;\ntype Item = u8;"),
            ("crates/b/src/c.rs", "unsafe trait Plan {}\ntype Item = u8; // struct Kind"),
            ("crates/b/tests/d.rs", "struct Kind;"),
        ]);
        let problems = check(&tree);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].what.starts_with("Plan is defined 3 times: "), "{problems:?}");
    }

    #[test]
    fn arguments_errors_and_stores_may_share_their_names() {
        let text = "struct Args;\nstruct Error;\nstruct Store;\nstruct Store1;\n".repeat(3);
        assert_eq!(check(&Tree::of(&[("crates/a/src/lib.rs", &text)])), []);
    }
}
