//! Every operation of a device has a case among the tests that compare all devices.

use super::Problem;
use crate::tree::{SourceFile, Tree};

/// The traits of operations.
const TRAITS: &str = "crates/backend/src/seam/operations.rs";
/// The enum of elementwise operations, all of which are one method.
const MAP: &str = "crates/backend/src/map_op.rs";
/// The folder of cases, which are in files that call [`ON_EVERY_DEVICE`].
const CASES: &str = "crates/backend/tests/conformance/";
const ON_EVERY_DEVICE: &str = "on_every_device(";

/// Looks for a call of each method of the traits, and for each variant of the enum.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let files = tree.with_extension("rs").filter(|file| file.path.starts_with(CASES));
    let cases = files.map(|file| file.code.as_str()).filter(|code| code.contains(ON_EVERY_DEVICE));
    let cases: String = cases.collect();
    let mut problems = lacking(tree, TRAITS, method, |name| cases.contains(&format!(".{name}(")));
    problems.extend(lacking(tree, MAP, variant, |name| {
        let path = format!("MapOp::{name}");
        cases.split(&path).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    }));
    problems
}

/// The items of the file `path`, found by `item` in its lines, that have no case.
fn lacking(
    tree: &Tree,
    path: &str,
    item: impl Fn(&str) -> Option<&str>,
    has_case: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let Some(SourceFile { code, .. }) = tree.file(path) else {
        return vec![Problem::new(path, 1, "no such file")];
    };
    let items = (1..).zip(code.lines()).filter_map(|(line, text)| Some((line, item(text)?)));
    let items = items.map(|(line, item)| {
        let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
        (line, &item[..end])
    });
    let lacking = items.filter(|(_, name)| !has_case(name));
    let problem = |name| format!("{name} has no case on every device in {CASES}");
    lacking.map(|(line, name)| Problem::new(path, line, problem(name))).collect()
}

/// What follows `fn` in the line of a method.
fn method(line: &str) -> Option<&str> {
    line.strip_prefix("    fn ")
}

/// The line of a variant.
fn variant(line: &str) -> Option<&str> {
    line.strip_prefix("    ").filter(|rest| rest.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_variants_without_a_case_on_every_device_are_found() {
        let traits = "trait A {\n    fn rows(&self);\n    fn row(\n        &self,\n    ) {}\n}";
        let map = "enum MapOp {\n    Add(u8),\n    AddBias,\n}\nfn f() {\n    match op {}\n}";
        let check = |cases: &str| {
            let path = format!("{CASES}a.rs");
            let files = [(TRAITS, traits), (MAP, map), (&*path, cases)];
            let problems = super::check(&Tree::of(&files)).into_iter();
            problems.map(|problem| (problem.line, problem.what)).collect::<Vec<_>>()
        };
        let lacks =
            |line, name: &str| (line, format!("{name} has no case on every device in {CASES}"));
        let all = "b.rows(); b.row(); MapOp::Add(1); MapOp::AddBias";
        assert_eq!(check(&format!("on_every_device(|| {{ {all} }})")), []);
        assert_eq!(check(all).len(), 4);
        let some = "on_every_device(|| { b.rows(); MapOp::AddBias; // b.row()\n })";
        assert_eq!(check(some), [lacks(3, "row"), lacks(2, "Add")]);
    }
}
