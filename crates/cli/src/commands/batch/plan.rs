//! What is to be done with each line, known before the model is loaded.
//!
//! The requests are read twice: here, for their ids and for what is wrong with them, and again
//! while they are computed. Ids are all that is held of them.

use super::input::{BatchCall, LineProblem, RequestLine, RequestLines};
use std::collections::HashMap;
use std::io;

/// Problems that are shown one by one.
const SHOWN: usize = 10;

/// The ids of a file of requests, and what is wrong with its lines.
#[derive(Debug, Default)]
pub(crate) struct BatchPlan {
    ids: HashMap<String, LineEntry>,
    lines: u64,
    wrong: u64,
    shown: Vec<String>,
}

/// The line that an id belongs to.
#[derive(Debug)]
struct LineEntry {
    line: u64,
    state: LineState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// No request.
    Wrong,
    /// To be computed.
    Open,
    /// Computed by an earlier run.
    Answered,
    /// Refused in an earlier run, as it would be again.
    Refused,
}

/// What is to be done with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineTask<'a> {
    /// Nothing: an earlier run has.
    Nothing,
    /// Say what is wrong with it. It has no id where that belongs to another line.
    Report(Option<String>, LineProblem),
    /// Compute its answer.
    Compute(String, BatchCall<'a>),
}

/// Lines by what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub lines: u64,
    pub answered: u64,
    pub refused: u64,
}

impl BatchPlan {
    /// Reads all lines.
    pub fn of(lines: &mut RequestLines) -> io::Result<Self> {
        let mut plan = Self::default();
        while let Some((number, line)) = lines.next()? {
            plan.lines += 1;
            if let LineTask::Report(_, problem) = plan.task(number, line) {
                plan.complain(number, &problem);
            }
        }
        Ok(plan)
    }

    fn complain(&mut self, number: u64, problem: &LineProblem) {
        self.wrong += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(in_line(number, problem));
        }
    }

    /// What is wrong with the lines, for people.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let more = self.wrong - self.shown.len() as u64;
        let more = (more > 0).then(|| format!("and {more} more lines that are no requests"));
        self.shown.iter().cloned().chain(more)
    }

    /// Notes that the line of `id` has an answer, or a refusal. False if it had one already.
    pub fn done(&mut self, id: &str, refused: bool) -> bool {
        // The answer to another file's line does no harm.
        let Some(entry) = self.ids.get_mut(id) else { return true };
        let open = matches!(entry.state, LineState::Wrong | LineState::Open);
        if open {
            entry.state = if refused { LineState::Refused } else { LineState::Answered };
        }
        open
    }

    /// Whether there is anything to compute.
    pub fn has_open(&self) -> bool {
        self.ids.values().any(|entry| entry.state == LineState::Open)
    }

    pub fn counts(&self) -> Counts {
        let count = |state| self.ids.values().filter(|entry| entry.state == state).count() as u64;
        let (answered, refused) = (count(LineState::Answered), count(LineState::Refused));
        Counts { lines: self.lines, answered, refused }
    }

    /// What is to be done with the line `number`.
    pub fn task<'a>(&mut self, number: u64, line: Result<&'a [u8], LineProblem>) -> LineTask<'a> {
        let line = match line.and_then(RequestLine::parse) {
            Ok(line) => line,
            Err(problem) => return LineTask::Report(None, problem),
        };
        let state = if line.call.is_ok() { LineState::Open } else { LineState::Wrong };
        let entry = self.ids.entry(line.id.clone()).or_insert(LineEntry { line: number, state });
        if entry.line != number {
            let message = format!("custom_id {:?} is that of line {} already", line.id, entry.line);
            return LineTask::Report(None, LineProblem::new("duplicate_custom_id", message));
        }
        match (entry.state, line.call) {
            (LineState::Answered | LineState::Refused, _) => LineTask::Nothing,
            (LineState::Wrong | LineState::Open, Ok(call)) => LineTask::Compute(line.id, call),
            (LineState::Wrong | LineState::Open, Err(problem)) => {
                LineTask::Report(Some(line.id), problem)
            }
        }
    }
}

/// A problem with its place.
pub(crate) fn in_line(number: u64, problem: &LineProblem) -> String {
    format!("line {number}: {}", problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> String {
        format!(r#"{{"custom_id": "{id}", "method": "POST", "url": "/v1/completions", "body": 1}}"#)
    }

    fn check(plan: &mut BatchPlan, number: u64, text: &str, expected: &str) {
        let task = format!("{:?}", plan.task(number, Ok(text.as_bytes())));
        assert!(task.starts_with(expected), "{task} is not {expected}");
    }

    #[test]
    fn the_first_line_with_an_id_has_it() {
        let mut plan = BatchPlan::default();
        for _ in 0..2 {
            check(&mut plan, 1, &line("a"), r#"Compute("a""#);
            check(&mut plan, 2, &line("a"), "Report(None");
            check(&mut plan, 3, r#"{"custom_id": "b"}"#, r#"Report(Some("b")"#);
            check(&mut plan, 4, "x", "Report(None");
        }
    }

    #[test]
    fn what_is_done_is_not_done_again() {
        let mut plan = BatchPlan::default();
        for (number, id) in [(1, "a"), (2, "b"), (3, "c")] {
            check(&mut plan, number, &line(id), "Compute");
        }
        assert!(plan.done("a", false) && plan.done("b", true) && plan.done("unknown", false));
        assert!(!plan.done("a", false), "a second answer is one too many");
        check(&mut plan, 1, &line("a"), "Nothing");
        check(&mut plan, 2, &line("b"), "Nothing");
        check(&mut plan, 3, &line("c"), "Compute");
        assert!(plan.has_open());
        assert_eq!((plan.counts().answered, plan.counts().refused), (1, 1));
    }
}
