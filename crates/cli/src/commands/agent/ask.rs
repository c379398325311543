//! Questions to the user: on the terminal, or as lines of JSON.
//!
//! Invariant: no answer is taken for a yes but one that says so, and none but one that came after
//! its question or names it; the end of the input is a no, and so is a signal.

use super::call_text::call_text;
use crate::output;
use agent::{AllowRule, Question, Reply};
use rustix::termios::{QueueSelector, tcflush};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Most bytes of an answer. After a longer one nothing is read: its rest is no answer.
const MAX_ANSWER: u64 = 1 << 20;
/// Most lines that wait.
const MAX_LINES: usize = 16;
/// Most bytes of a title.
const MAX_TITLE: usize = 200;
/// Time between two looks whether a question is over.
const LOOK: Duration = Duration::from_millis(50);

/// How the user is asked.
#[derive(Debug)]
pub(super) struct Asker {
    way: AskWay,
    /// How many questions were asked.
    asked: Arc<AtomicUsize>,
    /// Lines of standard input, which a thread reads from the first question on.
    lines: Option<Receiver<InputLine>>,
}

/// A line of standard input.
#[derive(Debug)]
struct InputLine {
    text: String,
    /// How many questions had been asked when it was read.
    asked: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskWay {
    /// No user can be asked.
    Nobody,
    /// On the terminal.
    Terminal,
    /// By lines of JSON.
    Lines,
}

/// An answer as a line of JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerLine {
    answer: AnswerKind,
    reason: Option<String>,
    /// The number of the question.
    question: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerKind {
    Once,
    Session,
    No,
}

impl Asker {
    /// How to ask where events are `json`, or text; unless standard input is the prompt.
    pub fn new(json: bool, is_input_free: bool) -> Self {
        let way = match (is_input_free, json) {
            (true, true) => AskWay::Lines,
            (true, false) if stdin().is_terminal() => AskWay::Terminal,
            _ => AskWay::Nobody,
        };
        Self { way, asked: Arc::default(), lines: None }
    }

    /// Whether there is a user at the terminal.
    pub fn has_terminal(&self) -> bool {
        self.way == AskWay::Terminal
    }

    /// Asks, and waits for the answer or until `is_over`.
    pub fn ask(&mut self, question: &Question<'_>, is_over: &dyn Fn() -> bool) -> Reply {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        match self.way {
            AskWay::Nobody => Reply::No(Some("no user can be asked".to_owned())),
            AskWay::Terminal => self.on_terminal((question, number), is_over),
            AskWay::Lines => self.in_lines((question, number), is_over),
        }
    }

    fn in_lines(
        &mut self,
        (question, number): (&Question<'_>, usize),
        is_over: &dyn Fn() -> bool,
    ) -> Reply {
        let mut asked = event(question);
        asked["number"] = number.into();
        if output::lines([asked]).is_err() {
            return Reply::No(Some("the question could not be asked".to_owned()));
        }
        loop {
            let Some(line) = self.line(is_over) else {
                return Reply::No(Some("there was no answer".to_owned()));
            };
            if let Some(reply) = reply(&line, number, rule(question).is_some()) {
                return reply;
            }
        }
    }

    fn on_terminal(
        &mut self,
        (question, number): (&Question<'_>, usize),
        is_over: &dyn Fn() -> bool,
    ) -> Reply {
        // What was typed before the question is no answer.
        let _ = tcflush(stdin(), QueueSelector::IFlush);
        let rule = rule(question);
        let session = rule.map_or_else(String::new, |rule| format!(", [s]ession ({rule})"));
        output::note(format_args!("{}", agent::printable(what(question).as_bytes())));
        loop {
            output::note(format_args!("allow? [y]es, once{session}, [n]o, or no with a reason:"));
            let Some(line) = self.line_after(number, is_over) else { return Reply::No(None) };
            match line.trim() {
                "y" | "yes" => return Reply::Once,
                "s" | "session" if rule.is_some() => return Reply::Session,
                "n" | "no" => return Reply::No(None),
                "" => {}
                reason => {
                    let reason = reason.strip_prefix("no ").unwrap_or(reason);
                    return Reply::No(Some(reason.to_owned()));
                }
            }
        }
    }

    /// The next line that was typed after the question `number`.
    fn line_after(&mut self, number: usize, is_over: &dyn Fn() -> bool) -> Option<String> {
        loop {
            let line = self.line(is_over)?;
            if line.asked >= number {
                return Some(line.text);
            }
        }
    }

    /// The next line of standard input; `None` at its end, and once this is over.
    fn line(&mut self, is_over: &dyn Fn() -> bool) -> Option<InputLine> {
        let lines = self.lines.get_or_insert_with(|| read_lines(Arc::clone(&self.asked)));
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) if !is_over() => {}
                Err(_) => return None,
            }
        }
    }
}

/// The reply that a line is to the question `number`; `None` if it is none: one that names another
/// question, and one that was read before and names none.
fn reply(line: &InputLine, number: usize, has_rule: bool) -> Option<Reply> {
    let no = |reason: String| Some(Reply::No(Some(reason)));
    let answer: Result<AnswerLine, _> = serde_json::from_str(&line.text);
    let is_late = line.asked >= number;
    match answer {
        Ok(AnswerLine { question: Some(named), .. }) if named != number => None,
        Ok(AnswerLine { question: None, .. }) | Err(_) if !is_late => None,
        Ok(AnswerLine { answer: AnswerKind::Once, .. }) => Some(Reply::Once),
        Ok(AnswerLine { answer: AnswerKind::Session, .. }) if has_rule => Some(Reply::Session),
        Ok(AnswerLine { answer: AnswerKind::Session, .. }) => {
            no("the question has no rule for the session".to_owned())
        }
        Ok(AnswerLine { answer: AnswerKind::No, reason, .. }) => Some(Reply::No(reason)),
        Err(error) => no(format!("the answer is no answer: {error}")),
    }
}

/// The rule that would allow what is asked.
pub(super) fn rule<'a>(question: &'a Question<'_>) -> Option<&'a AllowRule> {
    match question {
        Question::Call(_, rule, _) => rule.as_ref(),
        Question::Guarded(_) => None,
    }
}

/// What is asked, whole and not printable.
pub(super) fn what(question: &Question<'_>) -> String {
    match question {
        Question::Call(call, _, Some(difference)) => format!("{}\n{difference}", call.name),
        Question::Call(call, _, None) => format!("{} {}", call.name, call_text(call)),
        Question::Guarded(report) => {
            format!("{} {}\n{}", report.kind, report.path, report.difference)
        }
    }
}

/// The first line of what is asked, cut where it is long.
pub(super) fn title(question: &Question<'_>) -> String {
    let what = what(question);
    let line = what.lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(MAX_TITLE);
    if end < what.trim_end().len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// A question as the event `question`.
pub(super) fn event(question: &Question<'_>) -> Value {
    match question {
        Question::Call(call, rule, difference) => json!({
            "event": "question", "id": call.id, "tool": call.name, "arguments": call.arguments,
            "rule": rule.as_ref().map(ToString::to_string), "difference": difference,
        }),
        Question::Guarded(report) => json!({
            "event": "question", "path": report.path, "kind": report.kind,
            "difference": report.difference, "undone": report.undone,
        }),
    }
}

/// Has a thread read the lines of standard input, after so many questions.
fn read_lines(asked: Arc<AtomicUsize>) -> Receiver<InputLine> {
    let (sender, lines) = sync_channel(MAX_LINES);
    let thread = std::thread::Builder::new().name("gannet-answers".to_owned());
    let next = move || {
        let text = line()?;
        Some(InputLine { text, asked: asked.load(Ordering::Relaxed) })
    };
    // Without the thread, the input has ended.
    let _ = thread.spawn(move || while next().is_some_and(|line| sender.send(line).is_ok()) {});
    lines
}

/// The next line of standard input; `None` at its end, and of a line that is too long.
fn line() -> Option<String> {
    let mut line = Vec::new();
    let mut input = stdin().lock().take(MAX_ANSWER);
    let read = input.read_until(b'\n', &mut line).ok()?;
    let is_whole = read > 0 && input.limit() > 0;
    is_whole.then(|| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ToolCall;

    #[test]
    fn an_answer_came_after_its_question_or_names_it() {
        let check = |text: &str, asked, has_rule, expected: Option<Reply>| {
            let line = InputLine { text: text.to_owned(), asked };
            assert_eq!(reply(&line, 2, has_rule), expected, "{text} {asked}");
        };
        let no = |reason: &str| Some(Reply::No(Some(reason.to_owned())));
        check(r#"{"answer":"once"}"#, 2, false, Some(Reply::Once));
        check(r#"{"answer":"once"}"#, 1, false, None);
        check(r#"{"answer":"once","question":2}"#, 1, false, Some(Reply::Once));
        check(r#"{"answer":"once","question":1}"#, 2, false, None);
        check(r#"{"answer":"once","question":3}"#, 2, false, None);
        check(r#"{"answer":"session","question":2}"#, 2, true, Some(Reply::Session));
        check(r#"{"answer":"session"}"#, 2, false, no("the question has no rule for the session"));
        check(r#"{"answer":"no","reason":"x"}"#, 2, true, no("x"));
        check("once", 1, true, None);
        let wrong = InputLine { text: "once".to_owned(), asked: 2 };
        assert!(matches!(reply(&wrong, 2, true), Some(Reply::No(Some(_)))));
    }

    #[test]
    fn a_title_is_one_line_that_says_where_it_is_cut() {
        let check = |command: &str, expected: &str| {
            let arguments = json!({"command": command});
            let call = ToolCall { name: "bash".into(), arguments, ..ToolCall::default() };
            assert_eq!(title(&Question::Call(&call, None, None)), expected);
        };
        check("make", "bash make");
        check("make\nrm x", "bash make…");
        check(&"é".repeat(200), &format!("bash {}…", "é".repeat(97)));
    }
}
