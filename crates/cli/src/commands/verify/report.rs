//! The checks and their results.

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;

#[derive(Debug, Serialize)]
struct Check {
    check: String,
    /// `None` where nothing was compared.
    value: Option<f64>,
    /// The bound of the value; `None` if it is only shown.
    bound: Option<String>,
    /// `None` where nothing was compared.
    ok: Option<bool>,
    /// Why nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<&'static str>,
}

impl Check {
    /// Whether the value was held against a bound.
    fn is_compared(&self) -> bool {
        self.ok.is_some() && self.bound.is_some()
    }
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

    /// Adds a check that `right` of `wanted` cases agree; without cases it is not comparable.
    pub fn equal(&mut self, check: String, right: usize, wanted: usize, why_none: &'static str) {
        match wanted {
            0 => self.not_comparable(check, why_none),
            _ => self.push(check, right as f64, Some(format!("= {wanted}")), right == wanted),
        }
    }

    /// Adds a check in which nothing could be compared.
    pub fn not_comparable(&mut self, check: String, why: &'static str) {
        let not_comparable = Some(why);
        self.checks.push(Check { check, value: None, bound: None, ok: None, not_comparable });
    }

    fn push(&mut self, check: String, value: f64, bound: Option<String>, ok: bool) {
        let (value, ok) = (Some(value), Some(ok));
        self.checks.push(Check { check, value, bound, ok, not_comparable: None });
    }

    /// Whether anything was compared, and every check of it passes.
    pub fn holds(&self) -> bool {
        let [failed, compared, _] = self.counts();
        compared > 0 && failed == 0
    }

    /// Numbers of checks that failed, that were compared, and that are not comparable.
    fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&Check) -> bool| self.checks.iter().filter(|check| is(check)).count();
        [
            count(|check| check.ok == Some(false)),
            count(Check::is_compared),
            count(|check| check.not_comparable.is_some()),
        ]
    }

    pub fn to_json(&self) -> Value {
        let [failed, compared, not_comparable] = self.counts();
        json!({
            "ok": self.holds(),
            "failed": failed,
            "compared": compared,
            "not_comparable": not_comparable,
            "checks": self.checks,
        })
    }

    pub fn to_table(&self) -> String {
        let width = self.checks.iter().map(|c| c.check.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for Check { check, value, bound, ok, not_comparable } in &self.checks {
            let value = value.map_or_else(String::new, short);
            let verdict = match ok {
                Some(true) => "ok",
                Some(false) => "FAILED",
                None => "not comparable",
            };
            let bound = not_comparable.or(bound.as_deref()).unwrap_or("(shown only)");
            let _ = writeln!(table, "{check:width$}  {value:>12}  {bound:14} {verdict}");
        }
        let more = match self.counts()[2] {
            0 => String::new(),
            count => format!(", {count} not comparable"),
        };
        let _ = match self.counts() {
            [_, 0, _] => writeln!(table, "nothing was compared{more}"),
            [0, compared, _] => writeln!(table, "all {compared} checks hold{more}"),
            [failed, compared, _] => {
                writeln!(table, "{failed} of {compared} checks FAILED{more}")
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fill: impl Fn(&mut VerifyReport), holds: bool, end: &str) {
        let mut report = VerifyReport::default();
        fill(&mut report);
        let table = report.to_table();
        assert!(table.ends_with(end), "{table}");
        assert_eq!((report.holds(), report.to_json()["ok"] == true), (holds, holds), "{table}");
    }

    #[test]
    fn a_check_without_cases_neither_holds_nor_fails() {
        let none = |report: &mut VerifyReport| report.equal("greedy".into(), 0, 0, "no step");
        check(
            none,
            false,
            "no step        not comparable\nnothing was compared, 1 not comparable\n",
        );
        check(|_| {}, false, "nothing was compared\n");
        let one = |report: &mut VerifyReport| {
            none(report);
            report.at_most("shown".into(), 1.0, None);
            report.at_least("cosine".into(), 1.0, 0.9);
        };
        check(one, true, "\nall 1 checks hold, 1 not comparable\n");
        let wrong = |report: &mut VerifyReport| {
            one(report);
            report.equal("greedy".into(), 1, 2, "no step");
        };
        check(wrong, false, "\n1 of 2 checks FAILED, 1 not comparable\n");
    }

    #[test]
    fn no_bound_holds_for_what_is_not_a_number() {
        let nan = |report: &mut VerifyReport| report.at_most("x".into(), f64::NAN, Some(1.0));
        check(nan, false, "1 of 1 checks FAILED\n");
    }
}
