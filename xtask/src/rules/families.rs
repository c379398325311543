//! The README's table lists the model families that the program knows.

use super::Problem;
use super::tables::{cells, quoted};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Where the table of families is; the first that exists counts.
const TABLES: [&str; 2] =
    ["crates/formats/src/families/table.rs", "crates/formats/src/config/family.rs"];
const README: &str = "README.md";

/// Compares the names in backticks of the README's row `architectures` with the table's entries.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(known) = TABLES.iter().find_map(|path| tree.file(path)).map(|file| names(&file.code))
    else {
        return vec![Problem::new(TABLES[0], 1, "no table of families")];
    };
    let lines = tree.file(README).map_or("", |file| &file.text).lines().enumerate();
    let mut rows = lines.filter(|(_, line)| cells(line).first() == Some(&"architectures"));
    let Some((index, row)) = rows.next() else {
        return vec![Problem::new(README, 1, "no row `architectures`")];
    };
    let listed: BTreeSet<String> = quoted(row).map(str::to_owned).collect();
    let problem =
        |what: &str, name: &String| Problem::new(README, index + 1, format!("{what} {name}"));
    let missing = known.difference(&listed).map(|name| problem("lacks the family", name));
    let unknown = listed.difference(&known).map(|name| problem("names the unknown family", name));
    missing.chain(unknown).collect()
}

/// The families of `static FAMILIES`, by the names of their constants.
fn names(code: &str) -> BTreeSet<String> {
    let table = code.split_once("static FAMILIES").and_then(|(_, rest)| rest.split_once("= &["));
    let entries = table.and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    let constants = entries.split(',').filter_map(|entry| entry.rsplit("::").next());
    let constants = constants.map(|name| name.trim().trim_start_matches('&').to_lowercase());
    constants.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_that_only_one_side_has_are_found() {
        let table = "static FAMILIES: &[&Family] = &[\n    &a::LLAMA,\n    &b::GLM4_MOE,\n];";
        let check = |row: &str| {
            let readme = format!("# A\n| architectures | {row} |\n");
            let problems = super::check(&Tree::of(&[(TABLES[0], table), (README, &readme)]));
            problems.into_iter().map(|problem| problem.what).collect::<Vec<_>>()
        };
        assert_eq!(check("`llama`, GLM (`glm4_moe`)"), [""; 0]);
        assert_eq!(
            check("`llama`, `qwen9`"),
            ["lacks the family glm4_moe", "names the unknown family qwen9"]
        );
    }
}
