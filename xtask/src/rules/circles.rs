//! Modules of a crate use each other in one direction: modules around the same module make no
//! circle, and a module uses no item of a module around it, because that one uses its parts.
//!
//! What a module uses, the modules around it use as well: two folders that use files of each other
//! are a circle too. An item that a module around it re-exports is used from where it is defined.

use super::Problem;
use crate::lines::children;
use crate::rust::{test_lines, test_modules};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module by the names on the way from the root of its crate.
type Module = Vec<String>;

/// The modules that each module of a crate uses.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// A path in a file that is no test, from its module to the module that it leads to or into.
struct Use {
    path: String,
    from: Module,
    to: Module,
    /// What is used of `to`.
    item: String,
}

/// Finds circles in each crate.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in tree.crates() {
        let uses = uses(tree, &format!("crates/{name}/src/"));
        problems.extend(uses.iter().filter(|used| used.is_of_parent()).map(Use::problem));
        for circle in circles(&graph(&uses)) {
            let modules: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            let what = format!("{} modules use each other: {}", modules.len(), modules.join(", "));
            problems.push(Problem::new(&format!("crates/{name}/src"), 1, what));
        }
    }
    problems
}

impl Use {
    /// Whether an item is used of a module around the one that uses it.
    fn is_of_parent(&self) -> bool {
        self.to.len() < self.from.len() && self.from.starts_with(&self.to)
    }

    fn problem(&self) -> Problem {
        let Self { path, to, item, .. } = self;
        let parent = if to.is_empty() { "the root".to_owned() } else { to.join("::") };
        Problem::new(path, 1, format!("uses {item} of {parent}, which is around it"))
    }
}

/// The modules that each module uses, by the modules around both that have the same parent.
fn graph(uses: &[Use]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in uses.iter().filter_map(|used| siblings(&used.from, &used.to)) {
        graph.entry(from).or_default().insert(to);
    }
    graph
}

/// What modules of the crate in the folder `source` use of each other, without those of tests.
fn uses(tree: &Tree, source: &str) -> Vec<Use> {
    let files: Vec<_> = tree.sources().filter(|file| file.path.starts_with(source)).collect();
    let tests = files.iter().flat_map(|file| {
        let folder = children(Path::new(&file.path));
        test_modules(&file.code).into_iter().map(move |name| folder.join(name))
    });
    let tests: BTreeSet<_> = tests.collect();
    let is_test = |path: &str| {
        let path = Path::new(path).with_extension("");
        path.ancestors().any(|folder| tests.contains(folder))
    };
    let files: Vec<_> = files.into_iter().filter(|file| !is_test(&file.path)).collect();
    let modules: BTreeSet<Module> = files.iter().map(|f| module(&f.path, source)).collect();
    let mut uses = Vec::new();
    for file in files {
        let from = module(&file.path, source);
        let code = without_tests(&file.code);
        for path in paths(&code) {
            let Some((to, item)) = resolve(&path, &from, &modules) else { continue };
            uses.push(Use { path: file.path.clone(), from: from.clone(), to, item });
        }
    }
    uses
}

/// The modules around `a` and `b`, or themselves, that have the same parent. `None` where one is
/// around the other.
fn siblings(a: &Module, b: &Module) -> Option<(Module, Module)> {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let around = |module: &Module| module.get(..=common).map(<[String]>::to_vec);
    around(a).zip(around(b))
}

fn module(path: &str, source: &str) -> Module {
    let path = path.trim_start_matches(source).trim_end_matches(".rs");
    let mut parts: Module = path.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

fn without_tests(code: &str) -> String {
    let tests = test_lines(code);
    let lines = code.lines().enumerate();
    let kept = lines.filter(|(index, _)| !tests.iter().any(|test| test.contains(index)));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// All paths in `code` that begin with `crate`, `super` or `self`, with groups taken apart.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            let is_path = !before.is_alphanumeric() && !"_:".contains(before);
            // `pub(in crate::a)` uses nothing.
            if is_path && !code[..at].ends_with("(in ") {
                take_path(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Adds the path or paths at the beginning of `text`, each after `before`. Gives the rest.
fn take_path<'a>(
    text: &'a str,
    before: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> &'a str {
    let depth = before.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            rest = take_group(group, before, found);
            break;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        before.push(&rest[..end]);
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) => rest = more.trim_start(),
            None => {
                found.push(before.clone());
                break;
            }
        }
    }
    before.truncate(depth);
    rest
}

/// Adds the paths of a group up to its closing brace. Returns the rest of the text.
fn take_group<'a>(
    mut rest: &'a str,
    before: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> &'a str {
    loop {
        rest = take_path(rest, before, found);
        let Some(end) = rest.find([',', '}']) else { return "" };
        let is_last = rest[end..].starts_with('}');
        rest = rest[end + 1..].trim_start();
        if is_last {
            return rest;
        }
        if let Some(behind) = rest.strip_prefix('}') {
            return behind;
        }
    }
}

/// The module that a path in the module `from` leads to or into, and the item in it.
fn resolve(path: &[&str], from: &Module, modules: &BTreeSet<Module>) -> Option<(Module, String)> {
    let (mut at, mut rest) = match path[0] {
        "crate" => (Module::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        _ => (from.clone(), path),
    };
    while let Some(("super", more)) = rest.split_first().map(|(first, more)| (*first, more)) {
        at.pop()?;
        rest = more;
    }
    let mut item = path.last()?;
    for name in rest {
        at.push((*name).to_owned());
        if !modules.contains(&at) {
            at.pop();
            item = name;
            break;
        }
    }
    let item = if item.is_empty() { "*" } else { item };
    Some((at, item.to_owned()))
}

/// Sets of modules that lead to each other.
fn circles(graph: &Graph) -> Vec<BTreeSet<&Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let mut circles: Vec<BTreeSet<&Module>> = Vec::new();
    for (module, others) in &reach {
        let back = |other: &&&Module| reach.get(**other).is_some_and(|all| all.contains(module));
        let circle: BTreeSet<&Module> = others.iter().filter(back).copied().collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable<'a>(graph: &'a Graph, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if found.insert(module) {
            open.extend(graph.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/a/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let problems = super::check(&Tree::of(&files));
        let whats: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(whats, expected);
    }

    const MANIFEST: (&str, &str) = ("Cargo.toml", "");

    #[test]
    fn circles_are_found_through_uses_groups_and_plain_paths() {
        check(
            &[
                MANIFEST,
                ("src/lib.rs", "mod b; mod c; mod e;"),
                ("src/b.rs", "use crate::{c::{d::D, f::F}, e};"),
                ("src/c/mod.rs", "mod d; mod f;"),
                ("src/c/d.rs", "fn d() { super::super::e::g(); }"),
                ("src/c/f.rs", ""),
                ("src/e.rs", "pub use super::b::B;"),
            ],
            &["3 modules use each other: b, c, e"],
        );
        check(
            &[
                MANIFEST,
                ("src/b.rs", "use crate::c::d::D;"),
                ("src/c.rs", ""),
                ("src/c/e.rs", "use crate::b::B; use super::d::D;"),
                ("src/c/d.rs", "use super::e;"),
            ],
            &["2 modules use each other: b, c", "2 modules use each other: c::d, c::e"],
        );
    }

    #[test]
    fn parents_use_their_children_and_tests_use_anything() {
        check(
            &[
                MANIFEST,
                ("src/main.rs", "mod b; mod c; use b::B;"),
                (
                    "src/b.rs",
                    "use self::d::D; use crate::b::e;\n#[cfg(test)]\nmod tests { use crate::c; }",
                ),
                ("src/b/d.rs", "pub(in crate::b) struct D;\n#[cfg(test)]\nmod tests;"),
                ("src/b/d/tests.rs", "use super::super::B; use super::*; use crate::Main;"),
                ("src/b/e.rs", "use super::d::D; use super::d;"),
                ("src/c.rs", "// crate::b\n#[cfg(test)]\nmod f;"),
                ("src/c/f.rs", "use crate::g;"),
                ("src/g.rs", "use crate::c;"),
            ],
            &[],
        );
    }

    #[test]
    fn children_use_no_items_of_modules_around_them() {
        check(
            &[
                MANIFEST,
                ("src/lib.rs", "mod b; pub use b::d::D;"),
                ("src/b.rs", "mod d; mod e; pub struct B;"),
                ("src/b/d.rs", "use super::{B, e::E}; use crate::b;"),
                ("src/b/e.rs", "fn e() -> crate::D { super::f(); } use super::*;"),
            ],
            &[
                "uses b of b, which is around it",
                "uses B of b, which is around it",
                "uses D of the root, which is around it",
                "uses f of b, which is around it",
                "uses * of b, which is around it",
            ],
        );
    }
}
