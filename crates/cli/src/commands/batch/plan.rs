//! Decides what to do with each line, before the model is loaded.
//!
//! The requests are read twice: here, for their ids and their problems, and again while they are
//! computed. Only the ids are held in memory.

use super::input::{BatchCall, LineProblem, RequestLine, RequestLines};
use super::tally::BatchTally;
use std::collections::HashMap;
use std::io;

/// Maximum number of problems that are shown one by one.
const SHOWN: usize = 10;

/// The ids of a file of requests, and the problems of its lines.
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
    /// The line is not a request.
    Wrong,
    /// The answer is to be computed.
    Open,
    /// An earlier run computed the answer.
    Answered,
    /// The server refused the request in an earlier run.
    Refused,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineTask<'a> {
    /// Nothing: an earlier run did it.
    Nothing,
    /// Write the problem. The id is `None` where it belongs to another line.
    Report(Option<String>, LineProblem),
    /// Compute its answer.
    Compute(String, BatchCall<'a>),
}

impl BatchPlan {
    /// Reads all lines.
    pub fn of(lines: &mut RequestLines) -> io::Result<Self> {
        let mut plan = Self::default();
        while let Some((number, line)) = lines.next()? {
            plan.lines += 1;
            if let LineTask::Report(_, problem) = plan.task(number, line) {
                plan.wrong += 1;
                if plan.shown.len() < SHOWN {
                    plan.shown.push(in_line(number, &problem));
                }
            }
        }
        Ok(plan)
    }

    /// The problems of the lines as text.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let more = self.wrong - self.shown.len() as u64;
        let more = (more > 0).then(|| format!("and {more} more invalid lines"));
        self.shown.iter().cloned().chain(more)
    }

    /// Marks the line of `id` as answered or refused. Returns false if it was marked already.
    pub fn done(&mut self, id: &str, refused: bool) -> bool {
        // An answer to a request of another file is kept.
        let Some(entry) = self.ids.get_mut(id) else { return true };
        let open = matches!(entry.state, LineState::Wrong | LineState::Open);
        if open {
            entry.state = if refused { LineState::Refused } else { LineState::Answered };
        }
        open
    }

    /// Whether any line is to be computed.
    pub fn has_open(&self) -> bool {
        self.ids.values().any(|entry| entry.state == LineState::Open)
    }

    /// The counts of the run that follows.
    pub fn tally(&self) -> BatchTally {
        let count = |state| self.ids.values().filter(|entry| entry.state == state).count() as u64;
        BatchTally::new(self.lines, count(LineState::Answered), count(LineState::Refused))
    }

    /// What to do with line `number`.
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

/// A problem with its line number.
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
        assert_eq!((plan.tally().done(), plan.tally().not_answered()), (2, 1));
    }
}
