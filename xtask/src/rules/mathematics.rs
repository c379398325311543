//! No function of the platform's mathematical library decides a bit: its results differ from system
//! to system. `base::math` has the same functions.

use super::Problem;
use crate::rust::without_tests;
use crate::tree::Tree;

/// Methods of floats whose results are the platform's. A square root is exact everywhere.
const METHODS: [&str; 26] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "exp",
    "exp2", "exp_m1", "hypot", "ln", "ln_1p", "log", "log10", "log2", "powf", "powi", "sin",
    "sin_cos", "sinh", "tan", "tanh",
];

/// Files whose functions of floats decide no logit, token or printed number of a model: what stays
/// in memory or on disk, the arrivals and charts of load tests, and the backend that others are
/// compared with.
const ELSEWHERE: [&str; 4] = [
    "crates/backend/src/heat.rs",
    "crates/backend/src/reference",
    "crates/loadtest/",
    "crates/store/src/worth.rs",
];

/// Finds calls of the methods outside of tests.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let decides = |path: &str| {
        !path.contains("/tests") && !ELSEWHERE.iter().any(|elsewhere| path.starts_with(elsewhere))
    };
    for file in tree.sources().filter(|file| decides(&file.path)) {
        for (index, line) in without_tests(&file.code).lines().enumerate() {
            for method in METHODS.iter().filter(|method| calls(line, method)) {
                let what = format!("{method} is the platform's; base::math has one for all");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
    }
    problems
}

/// Whether a line has `.method(`, `f32::method` or `f64::method`.
fn calls(line: &str, method: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let as_path = |ty: &str| line.split(&format!("{ty}::{method}")).skip(1).any(ends);
    line.contains(&format!(".{method}(")) || as_path("f32") || as_path("f64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_floats_are_found_outside_of_tests() {
        let code = "fn a(x: f64) -> f64 {\n    x.exp()\n}\n// x.ln()\nlet f = f32::sin_cos;\n\
                    math::exp(x.sqrt()); x.expand(); f64::expand(x); x.log(2.0)\n\
                    #[cfg(test)]\nmod tests { fn b() { 1f64.tanh(); } }\n";
        let problems =
            check(&Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/b.rs", code)]));
        let found: Vec<_> = problems.iter().map(|it| (it.line, &it.what[..3])).collect();
        assert_eq!(found, [(2, "exp"), (5, "sin"), (6, "log")]);
    }
}
