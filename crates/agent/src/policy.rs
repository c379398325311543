//! Which calls run without a question.
//!
//! Invariant: nothing is allowed by time. What no rule and no setting allows is asked, or refused
//! where no user can be asked.

use crate::rules::{AllowRule, RuleSubject};
use std::str::FromStr;

/// Why a call is refused where no user can be asked, and while the model plans.
const NOT_ASKED: &str = "no user can be asked";
const PLANS: &str = "nothing is written while you plan";

/// When the user is asked (`--confirm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// Before what the sandbox does not contain.
    #[default]
    Outside,
    /// Also before what writes.
    Writes,
    /// Never: what the sandbox does not contain is an error for the model.
    Refuse,
    /// Never: everything runs.
    Allow,
}

/// Names of [`Confirm`], as `--confirm` takes them.
pub const CONFIRMS: [(&str, Confirm); 4] = [
    ("outside", Confirm::Outside),
    ("writes", Confirm::Writes),
    ("refuse", Confirm::Refuse),
    ("allow", Confirm::Allow),
];

impl FromStr for Confirm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = CONFIRMS.iter().find(|(name, _)| *name == text);
        known.map(|(_, confirm)| *confirm).ok_or_else(|| {
            let names = CONFIRMS.map(|(name, _)| name).join(", ");
            format!("expected one of {names}, found {text}")
        })
    }
}

/// What a call may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReach {
    /// Whether the sandbox contains all that it does.
    pub is_inside: bool,
    /// Whether it may write.
    pub writes: bool,
    /// What rules look at.
    pub subject: RuleSubject,
}

impl CallReach {
    /// The rule that would allow such calls.
    pub fn rule(&self) -> Option<AllowRule> {
        AllowRule::of(&self.subject)
    }
}

/// What is done with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It runs.
    Run,
    /// The user is asked.
    Ask,
    /// It is an error for the model, with this reason.
    Refuse(&'static str),
}

/// The setting and the rules of a session.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// When the user is asked.
    pub confirm: Confirm,
    /// What is allowed without a question.
    pub rules: Vec<AllowRule>,
    /// Whether the model plans: what may write where the sandbox does not forbid it is refused.
    pub is_plan: bool,
}

impl Policy {
    /// What is done with a call.
    pub fn decide(&self, call: &CallReach) -> Decision {
        if self.is_plan && call.writes && !call.is_inside {
            return Decision::Refuse(PLANS);
        }
        if self.rules.iter().any(|rule| rule.allows(&call.subject)) {
            return Decision::Run;
        }
        match (self.confirm, call.is_inside) {
            (Confirm::Allow, _) | (Confirm::Outside | Confirm::Refuse, true) => Decision::Run,
            (Confirm::Writes, true) if !call.writes => Decision::Run,
            (Confirm::Refuse, false) => Decision::Refuse(NOT_ASKED),
            (Confirm::Outside | Confirm::Writes, _) => Decision::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(is_inside: bool, writes: bool) -> CallReach {
        CallReach { is_inside, writes, subject: RuleSubject::Command("cargo test".to_owned()) }
    }

    fn decide(confirm: Confirm, call: &CallReach) -> Decision {
        Policy { confirm, ..Policy::default() }.decide(call)
    }

    #[test]
    fn what_is_outside_runs_only_where_it_is_allowed() {
        let all = [call(true, false), call(true, true), call(false, false), call(false, true)];
        use Decision::{Ask, Run};
        let refuse = Decision::Refuse(NOT_ASKED);
        for (confirm, expected) in [
            (Confirm::Outside, [Run, Run, Ask, Ask]),
            (Confirm::Writes, [Run, Ask, Ask, Ask]),
            (Confirm::Refuse, [Run, Run, refuse, refuse]),
            (Confirm::Allow, [Run; 4]),
        ] {
            let found: Vec<_> = all.iter().map(|call| decide(confirm, call)).collect();
            assert_eq!(found, expected, "{confirm:?}");
        }
    }

    #[test]
    fn rules_allow_their_own_calls_under_every_setting() {
        for (_, confirm) in CONFIRMS {
            let rules = vec!["bash: cargo test".parse().unwrap()];
            let policy = Policy { confirm, rules, is_plan: false };
            assert_eq!(policy.decide(&call(false, true)), Decision::Run);
            let mut other = call(false, true);
            other.subject = RuleSubject::Command("cargo test; rm x".to_owned());
            assert_eq!(policy.decide(&other), decide(confirm, &other), "{confirm:?}");
        }
    }

    #[test]
    fn a_plan_refuses_what_may_write_outside_whatever_is_allowed() {
        for (_, confirm) in CONFIRMS {
            let rules = vec!["bash: cargo test".parse().unwrap()];
            let usual = Policy { confirm, rules, is_plan: false };
            let plan = Policy { is_plan: true, ..usual.clone() };
            assert_eq!(plan.decide(&call(false, true)), Decision::Refuse(PLANS), "{confirm:?}");
            // The sandbox is read-only then, and what only reads is what it was.
            for call in [call(true, true), call(true, false), call(false, false)] {
                assert_eq!(plan.decide(&call), usual.decide(&call), "{confirm:?}");
            }
        }
    }

    #[test]
    fn names_of_settings_are_read() {
        for (name, confirm) in CONFIRMS {
            assert_eq!(name.parse(), Ok(confirm));
        }
        assert!("yes".parse::<Confirm>().unwrap_err().contains("outside, writes, refuse, allow"));
    }
}
