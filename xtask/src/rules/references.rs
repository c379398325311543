//! What documents name in backticks exists: files and folders, Rust items, and words of code.
//!
//! A word is looked up by its form: `a/b.rs` is a path, `Type`, `Type::method`, `a::b` and
//! `name()` are items, `snake_case` is a word of the code. Other forms, such as flags, routes and
//! commands, are not looked up. `docs/foreign-names.txt` lists names of other projects.

use super::Problem;
use super::types::defined;
use crate::tree::{SourceFile, Tree};
use std::collections::{BTreeSet, HashMap, HashSet};

const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
const FOREIGN: &str = "docs/foreign-names.txt";
/// Extensions by which a name alone is known to be a file of the project.
const FILES: [&str; 4] = [".rs", ".py", ".md", ".toml"];
/// Larger files are data.
const MAX_BYTES: usize = 200_000;
/// Words before the name of an item.
const KEYWORDS: [&str; 6] = ["trait ", "struct ", "enum ", "static ", "fn ", "mod "];

/// Finds names of things that are not there.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let foreign = tree.file(FOREIGN).map_or("", |file| &file.text);
    let foreign: BTreeSet<&str> = foreign.lines().map(str::trim).collect();
    let index = Index::of(tree);
    let mut problems = Vec::new();
    for file in tree.with_extension("md").filter(|file| is_checked(&file.path)) {
        for (line, name) in names(&file.text) {
            if !foreign.contains(name) && !index.knows(name) {
                let what = format!("`{name}` does not exist");
                problems.push(Problem::new(&file.path, line, what));
            }
        }
    }
    problems
}

fn is_checked(path: &str) -> bool {
    DOCUMENTS.contains(&path) || path.starts_with("docs/")
}

/// Names in backticks with their lines; code blocks are left out.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced {
            names.extend(line.split('`').skip(1).step_by(2).map(|name| (index + 1, name)));
        }
    }
    names
}

/// The things that documents may name.
struct Index<'a> {
    tree: &'a Tree,
    crates: BTreeSet<&'a str>,
    /// Files that define or implement each type.
    types: HashMap<&'a str, Vec<&'a SourceFile>>,
    /// Words at the places of definitions: types, functions, variants, constants, macros.
    items: HashSet<&'a str>,
    /// All words of files that are not documents.
    words: HashSet<&'a str>,
    /// The words of each Rust file's code.
    code: Vec<(&'a str, HashSet<&'a str>)>,
}

impl<'a> Index<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut index = Self {
            tree,
            crates: tree.crates(),
            types: HashMap::new(),
            items: HashSet::new(),
            words: HashSet::new(),
            code: Vec::new(),
        };
        let read = |file: &&SourceFile| !file.path.ends_with(".md") && file.text.len() < MAX_BYTES;
        for file in tree.files.iter().filter(read) {
            index.words.extend(words(&file.text));
            index.code.push((&file.path, words(&file.code).collect()));
            for line in file.code.lines() {
                for name in defined(line).into_iter().chain(implemented(line)) {
                    index.types.entry(name).or_default().push(file);
                }
                index.items.extend(item(line));
            }
        }
        index
    }

    /// Whether what `name` stands for exists, or its form says that it is not looked up.
    fn knows(&self, name: &str) -> bool {
        let name = KEYWORDS.iter().find_map(|word| name.strip_prefix(word)).unwrap_or(name);
        let plain = |c: char| c.is_ascii_alphanumeric() || "_./:()-".contains(c);
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(['/', '.', '-']) {
            return true;
        }
        let function = name.strip_suffix("()");
        let name = function.unwrap_or(name);
        if let Some((parent, last)) = name.rsplit_once("::") {
            return self.knows_path(parent, last);
        }
        if name.contains('/') || FILES.iter().any(|end| name.ends_with(end)) {
            return self.knows_file(name);
        }
        let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let lower = name.contains(|c: char| c.is_ascii_lowercase());
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase()) && lower;
        match (is_word, function.is_some()) {
            (false, _) => true,
            (_, true) => self.items.contains(name),
            _ if is_type => self.types.contains_key(name) || self.items.contains(name),
            _ if name.contains('_') && lower => self.words.contains(name),
            _ => true,
        }
    }

    /// Whether a path of the project ends with `name`. A name without an extension is a path only
    /// where it begins with a folder of the project.
    fn knows_file(&self, name: &str) -> bool {
        let path = name.trim_end_matches('/');
        let first = path.split('/').next().unwrap_or("");
        let is_folder = |folder: &str| self.tree.paths.contains(folder);
        let extension = FILES.iter().any(|end| path.ends_with(end));
        if !extension && !name.ends_with('/') && !is_folder(first) && !self.crates.contains(first) {
            return true;
        }
        let end = format!("/{path}");
        self.tree.paths.iter().any(|known| known == path || known.ends_with(&end))
    }

    /// `last` is an item of the type, module or crate that `parent` ends with.
    fn knows_path(&self, parent: &str, last: &str) -> bool {
        let parts: Vec<&str> = parent.split("::").collect();
        let owner = parts[parts.len() - 1];
        if owner.starts_with(|c: char| c.is_ascii_uppercase()) {
            let files = self.types.get(owner).into_iter().flatten();
            return files.flat_map(|file| file.code.lines()).filter_map(item).any(|n| n == last);
        }
        let is_module = |within: &str, name: &str| {
            let (file, folder) = (format!("/{name}.rs"), format!("/{name}"));
            let mut paths = self.tree.paths.range(within.to_owned()..);
            let mut paths = paths.by_ref().take_while(|path| path.starts_with(within));
            paths.any(|path| path.ends_with(&file) || path.ends_with(&folder))
        };
        let is_crate = |name: &str| self.crates.contains(name);
        let within = match is_crate(parts[0]) {
            true => format!("crates/{}/", parts[0]),
            false => "crates/".to_owned(),
        };
        let mut files = self.code.iter().filter(|(path, _)| path.starts_with(&within));
        parts.iter().all(|part| is_crate(part) || is_module(&within, part))
            && (is_module(&within, last) || files.any(|(_, words)| words.contains(last)))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// The type that a line begins to implement something for.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let rest = rest.rsplit_once(" for ").map_or(rest, |(_, ty)| ty);
    words(rest).find(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.len() > 1)
}

/// The function, constant, module, macro, type, field or variant that a line defines.
fn item(line: &str) -> Option<&str> {
    const DEFINING: [&str; 10] =
        ["fn", "const", "static", "mod", "macro_rules", "struct", "enum", "trait", "type", "union"];
    let mut all = words(line);
    let first = all.clone().next()?;
    if let Some(name) = all.by_ref().skip_while(|word| !DEFINING.contains(word)).nth(1) {
        return Some(name);
    }
    // A field or a variant stands at the beginning of its line.
    let line = line.trim_start();
    if let Some(field) = line.strip_prefix("pub").and_then(|_| line.split_once(": ")) {
        return words(field.0).last();
    }
    let rest = line.strip_prefix(first)?;
    let is_variant = rest.is_empty() || rest.starts_with([',', '(', '{', ' ', ':']);
    is_variant.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: &str, expected: &[&str]) {
        let problems = super::check(&Tree::of(&[
            ("README.md", document),
            (FOREIGN, "CUDA\nPyTorch\n"),
            ("crates/a/Cargo.toml", ""),
            (
                "crates/a/src/b.rs",
                "pub struct Thing {\n    pub(crate) age: u8,\n}\nimpl Thing {\n    pub fn go() {}\n}\nenum Kind {\n    First,\n}\n\
                 const DAYS: u8 = 7;\nfn run_all() { let kv_rank = \"some_metric\"; }\n",
            ),
            ("tests/c/test_d.py", "def check_it(): pass\n"),
        ]));
        let found: Vec<_> = problems.iter().map(|problem| problem.what.as_str()).collect();
        let expected: Vec<_> =
            expected.iter().map(|name| format!("`{name}` does not exist")).collect();
        assert_eq!(found, expected, "{document}");
    }

    #[test]
    fn what_is_there_is_known_in_every_form() {
        check("`crates/a/src/b.rs` `b.rs` `src/b.rs` `a/src` `tests/c/` `test_d.py` `a/`", &[]);
        check(
            "`Thing` `Thing::go` `Thing::age` `Kind::First` `a::b` `b::run_all` `a::Thing` `trait Kind`",
            &[],
        );
        check("`run_all()` `go()` `kv_rank` `some_metric` `check_it` `First`", &[]);
    }

    #[test]
    fn what_is_not_there_is_found() {
        check("`crates/a/src/c.rs` `a/source` `c.rs`", &["crates/a/src/c.rs", "a/source", "c.rs"]);
        check("`src/` `rc/b.rs` `d/`", &["rc/b.rs", "d/"]);
        check("`Door` `Thing::stop` `Door::go`", &["Door", "Thing::stop", "Door::go"]);
        check("`a::Door` `b::walk` `c::go`", &["a::Door", "b::walk", "c::go"]);
        check("`walk()` `silu_mul` `trait Door`", &["walk()", "silu_mul", "trait Door"]);
    }

    #[test]
    fn other_forms_foreign_names_and_code_blocks_are_left_alone() {
        check("`--no-such` `/v1/models` `GANNET_X` `cargo no_such` `owner/name` `x.jinja`", &[]);
        check(
            "`PyTorch` `token<T>` `fast` `a*b_c` `{\"no_such\": 1}` `CUDA`\n```\n`Door`\n```",
            &[],
        );
    }
}
