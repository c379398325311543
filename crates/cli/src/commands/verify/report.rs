//! The checks and their results.

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;

#[derive(Debug, Serialize)]
struct Check {
    check: String,
    value: f64,
    /// The bound of the value; `None` if it is only shown.
    bound: Option<String>,
    ok: bool,
}

/// Checks in the order they were made.
#[derive(Debug, Default)]
pub(super) struct VerifyReport {
    checks: Vec<Check>,
}

impl VerifyReport {
    /// Adds a check, or a value that is only shown where it has no bound.
    pub fn at_most(&mut self, check: String, value: f64, bound: Option<f64>) {
        let ok = bound.is_none_or(|bound| value <= bound);
        self.push(check, value, bound.map(|bound| format!("<= {}", short(bound))), ok);
    }

    pub fn at_least(&mut self, check: String, value: f64, bound: f64) {
        self.push(check, value, Some(format!(">= {bound:.6}")), value >= bound);
    }

    /// Adds a check that `right` of `wanted` cases agree.
    pub fn equal(&mut self, check: String, right: usize, wanted: usize) {
        self.push(check, right as f64, Some(format!("= {wanted}")), right == wanted);
    }

    fn push(&mut self, check: String, value: f64, bound: Option<String>, ok: bool) {
        self.checks.push(Check { check, value, bound, ok });
    }

    /// Whether every check passes.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|c| c.ok)
    }

    pub fn to_json(&self) -> Value {
        json!({ "ok": self.holds(), "checks": self.checks })
    }

    pub fn to_table(&self) -> String {
        let width = self.checks.iter().map(|c| c.check.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for Check { check, value, bound, ok } in &self.checks {
            let verdict = if *ok { "ok" } else { "FAILED" };
            let bound = bound.as_deref().unwrap_or("(shown only)");
            let _ = writeln!(table, "{check:width$}  {:>12}  {bound:14} {verdict}", short(*value));
        }
        let failed = self.checks.iter().filter(|c| !c.ok).count();
        let total = self.checks.len();
        let _ = match failed {
            0 => writeln!(table, "all {total} checks hold"),
            failed => writeln!(table, "{failed} of {total} checks FAILED"),
        };
        table
    }
}

/// A value with few digits.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e9 {
        format!("{value}")
    } else if value.abs() < 0.01 {
        format!("{value:.2e}")
    } else {
        format!("{value:.8}")
    }
}
