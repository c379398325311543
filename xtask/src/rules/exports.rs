//! A crate exports its own names: those of another crate are used from where they are defined.

use super::Problem;
use crate::tree::Tree;

/// Crates that may export names of others: the library, whose users depend on it alone, and one
/// that is not covered yet. None may be added.
const EXEMPT: [&str; 2] = ["gannet", "backend"];

/// Finds `pub use` of names of other crates.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let crates = tree.crates();
    let mut problems = Vec::new();
    for name in crates.iter().filter(|name| !EXEMPT.contains(*name)) {
        let source = format!("crates/{name}/src/");
        for file in tree.sources().filter(|file| file.path.starts_with(&source)) {
            for (index, line) in file.code.lines().enumerate() {
                let Some(other) = exported(line) else { continue };
                // A module may have the name of a crate.
                if crates.contains(other) && !file.code.contains(&format!("mod {other};")) {
                    let what = format!("exports names of the crate {other}");
                    problems.push(Problem::new(&file.path, index + 1, what));
                }
            }
        }
    }
    problems
}

/// What a line with `pub use` exports from.
fn exported(line: &str) -> Option<&str> {
    let path = line.trim_start().strip_prefix("pub use ")?.trim_start_matches("::");
    path.split([':', ';', ' ']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_crates_are_exported_by_the_library_alone() {
        let problems = check(&Tree::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod c;\npub use b::{B, d::D};\npub use c::C;\nuse b::E;"),
            ("crates/a/src/f.rs", "    pub use ::b;\n// pub use b::B;\npub use self::g::G;"),
            ("crates/b/Cargo.toml", ""),
            ("crates/c/Cargo.toml", ""),
            ("crates/gannet/Cargo.toml", ""),
            ("crates/gannet/src/lib.rs", "pub use ::b::B;"),
        ]));
        let what = "exports names of the crate b";
        let found = |path, line| Problem::new(path, line, what);
        assert_eq!(problems, [found("crates/a/src/lib.rs", 2), found("crates/a/src/f.rs", 1)]);
    }
}
