//! Questions to the user, which the client asks.
//!
//! Invariant: nothing is a yes but the choice of an option that says so. No time answers.

use super::outbox::Outbox;
use agent::{AllowRule, Reply};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two looks whether the work has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Questions that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct OpenQuestions(Mutex<QuestionState>);

#[derive(Debug, Default)]
struct QuestionState {
    asked: u64,
    waiting: HashMap<u64, Sender<Option<Value>>>,
}

impl OpenQuestions {
    /// Asks whether the call `call` of a session may run, and waits for the answer; a `rule` may be
    /// allowed for the session. `is_over` is asked meanwhile.
    pub fn ask(
        &self,
        outbox: &Outbox,
        (session, call): (&str, Value),
        rule: Option<&AllowRule>,
        is_over: &dyn Fn() -> bool,
    ) -> Reply {
        let params = json!({"sessionId": session, "toolCall": call, "options": options(rule)});
        let (sender, answer) = channel();
        let id = self.add(sender);
        outbox.request(id, "session/request_permission", params);
        let result = loop {
            match answer.recv_timeout(LOOK) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Timeout) if !is_over() => {}
                Err(_) => break None,
            }
        };
        self.state().waiting.remove(&id);
        reply(result.as_ref(), rule.is_some())
    }

    /// Takes the answer to the request `id`; `None` is an error. An answer to no open
    /// question is dropped.
    pub fn answer(&self, id: &Value, result: Option<Value>) {
        let waiting = id.as_u64().and_then(|id| self.state().waiting.remove(&id));
        if let Some(waiting) = waiting {
            // Who asked may not wait any more.
            let _ = waiting.send(result);
        }
    }

    fn add(&self, sender: Sender<Option<Value>>) -> u64 {
        let mut state = self.state();
        state.asked += 1;
        let id = state.asked;
        state.waiting.insert(id, sender);
        id
    }

    fn state(&self) -> MutexGuard<'_, QuestionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn options(rule: Option<&AllowRule>) -> Vec<Value> {
    let option = |id, name: String, kind| json!({"optionId": id, "name": name, "kind": kind});
    let session =
        |rule| option("session", format!("Allow in this session: {rule}"), "allow_always");
    let once = option("once", "Allow once".to_owned(), "allow_once");
    let no = option("no", "Reject".to_owned(), "reject_once");
    [Some(once), rule.map(session), Some(no)].into_iter().flatten().collect()
}

/// The reply that a result of the client is.
fn reply(result: Option<&Value>, has_rule: bool) -> Reply {
    let no = |reason: &str| Reply::No(Some(reason.to_owned()));
    let Some(outcome) = result.map(|result| &result["outcome"]) else {
        return no("the user was not asked, or has not answered");
    };
    match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
        (Some("selected"), Some("once")) => Reply::Once,
        (Some("selected"), Some("session")) if has_rule => Reply::Session,
        (Some("selected"), Some("no")) => Reply::No(None),
        (Some("cancelled"), _) => no("the question was cancelled"),
        _ => no("the answer is none of the options"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_the_choice_of_an_option_that_says_so() {
        let selected =
            |option: &str| json!({"outcome": {"outcome": "selected", "optionId": option}});
        let check = |result: Value, has_rule, expected: Option<Reply>| {
            let found = reply(Some(&result), has_rule);
            match expected {
                Some(expected) => assert_eq!(found, expected, "{result}"),
                None => assert!(matches!(found, Reply::No(Some(_))), "{result}: {found:?}"),
            }
        };
        check(selected("once"), false, Some(Reply::Once));
        check(selected("session"), true, Some(Reply::Session));
        check(selected("no"), true, Some(Reply::No(None)));
        check(selected("session"), false, None);
        check(selected("yes"), true, None);
        check(json!({"outcome": {"outcome": "cancelled", "optionId": "once"}}), true, None);
        check(json!({"outcome": "selected", "optionId": "once"}), true, None);
        for wrong in
            [json!(null), json!([]), json!("once"), json!({"outcome": {"optionId": "once"}})]
        {
            check(wrong, true, None);
        }
        assert!(matches!(reply(None, true), Reply::No(Some(_))));
    }

    #[test]
    fn the_rule_is_shown_where_there_is_one() {
        let rule: AllowRule = "bash: cargo test".parse().unwrap();
        let kinds = |rule| -> Vec<Value> {
            options(rule).into_iter().map(|option| option["kind"].clone()).collect()
        };
        assert_eq!(kinds(Some(&rule)), ["allow_once", "allow_always", "reject_once"]);
        assert_eq!(kinds(None), ["allow_once", "reject_once"]);
        assert_eq!(options(Some(&rule))[1]["name"], "Allow in this session: bash: cargo test");
    }
}
