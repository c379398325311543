//! Plans of whole sessions: requests with their answers, undoing and compaction.

use crate::forced::{PlannedAnswer, PlannedAnswers};
use crate::forced_session::{PlannedMessage, Watcher};
use agent::{Agent, Record, WorkEnd};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Calls of the same tool differ by a digit.
const MAX_CALLS: usize = 9;

/// What is done next.
#[derive(Clone, Debug)]
pub enum PlannedAct {
    /// The user asks, and these are the answers. After so many of them the user writes again, so
    /// that the call of the last one is skipped.
    Ask { answers: Vec<PlannedAnswer>, writes_after: Option<usize> },
    /// The user takes the last request back.
    Undo,
    /// The user has the conversation summed up.
    Compact,
}

/// How far a session has come in its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanPlace {
    /// Acts that are done.
    acts: usize,
    /// Answers of the act after them.
    answers: usize,
    /// The user's messages of that act.
    written: usize,
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    /// The next number below `below`.
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
}

/// All answers of a plan.
pub fn answers(plan: &[PlannedAct]) -> Vec<PlannedAnswer> {
    let answers = plan.iter().map(|act| match act {
        PlannedAct::Ask { answers, .. } => &answers[..],
        PlannedAct::Undo | PlannedAct::Compact => &[],
    });
    answers.flatten().cloned().collect()
}

/// A plan of requests with `calls` calls each. The first is undone, the user writes within the
/// second, and the last one follows a compaction.
pub fn plan(seed: u64, calls: &[usize]) -> Vec<PlannedAct> {
    let mut numbers = Numbers(seed);
    let mut made = [0; 5];
    let mut asks = calls.iter().enumerate().map(|(at, calls)| {
        let mut answers: Vec<_> = (0..*calls).map(|_| call(&mut numbers, &mut made)).collect();
        answers.push(PlannedAnswer::Say(format!("Request {at} is done.")));
        PlannedAct::Ask { answers, writes_after: (at == 1).then_some(1) }
    });
    let mut plan: Vec<_> = asks.by_ref().take(1).collect();
    plan.push(PlannedAct::Undo);
    plan.extend(asks);
    plan.insert(plan.len() - 1, PlannedAct::Compact);
    plan
}

/// A call with a digit that no other call of its tool has.
fn call(numbers: &mut Numbers, made: &mut [usize; 5]) -> PlannedAnswer {
    let kind = loop {
        let kind = numbers.next(made.len());
        if made[kind] < MAX_CALLS {
            break kind;
        }
    };
    made[kind] += 1;
    let (digit, lines) = (made[kind], 1 + numbers.next(20));
    let file = ["log", "long", "1.txt", "2.txt"][numbers.next(4)];
    let own = format!("{digit}.txt");
    let (tool, arguments) = match kind {
        0 => ("read", json!({"from": digit, "lines": lines, "path": file})),
        1 => ("bash", json!({"wait_s": 10 * digit, "command": format!("echo ran {digit} >>log")})),
        2 => ("search", search(digit, file)),
        3 => ("write", json!({"path": own, "content": "new\n".repeat(lines)})),
        _ => ("edit", json!({"path": own, "old": "beta", "lines": null, "new": "gamma"})),
    };
    PlannedAnswer::Call(tool.to_owned(), arguments)
}

fn search(digit: usize, file: &str) -> Value {
    let pattern = "ran|beta|new";
    json!({
        "max": digit, "pattern": pattern, "path": file, "glob": null, "context": null,
        "literal": false,
    })
}

/// Makes the files that plans work with.
pub fn make_files(work: &Path) {
    let long: String = (1..=100).map(|line| format!("line {line}\n")).collect();
    fs::write(work.join("long"), long).unwrap();
    for digit in 1..=MAX_CALLS {
        let text = format!("alpha {digit}\nbeta\n");
        fs::write(work.join(format!("{digit}.txt")), text).unwrap();
    }
}

impl PlanPlace {
    /// The place after these records of a session.
    pub fn of(plan: &[PlannedAct], records: &[Record]) -> Self {
        let mut place = Self::default();
        for record in records {
            match record {
                Record::Message { message, .. } if message["role"] == "user" => place.written += 1,
                Record::Message { message, .. } if message["role"] == "assistant" => {
                    place.answers += 1;
                }
                Record::Rewind { .. } | Record::Compaction { .. } => place.end_act(),
                _ => {}
            }
            if let Some(PlannedAct::Ask { answers, .. }) = plan.get(place.acts)
                && answers.len() == place.answers
            {
                place.end_act();
            }
        }
        place
    }

    fn end_act(&mut self) {
        *self = Self { acts: self.acts + 1, ..Self::default() };
    }

    /// Does the rest of the plan with a model whose answers are `answers`, or as much of it as
    /// the limits of `agent` allow.
    pub fn carry_on(
        self,
        plan: &[PlannedAct],
        (agent, answers): (&mut Agent, &PlannedAnswers),
        user: &mut Watcher<'_>,
    ) {
        for (at, act) in plan.iter().enumerate().skip(self.acts) {
            let here = if at == self.acts { self } else { Self::default() };
            match act {
                PlannedAct::Ask { answers: all, writes_after } => {
                    answers.to_come.borrow_mut().extend(all[here.answers..].iter().cloned());
                    let writes_after = writes_after.filter(|_| here.written < 2);
                    user.writes = writes_after.map(|made| PlannedMessage {
                        to_come: answers.clone(),
                        left: all.len() - made,
                    });
                    let end = match here.written {
                        0 => agent.work(&format!("Please do request {at}."), user),
                        _ => agent.go_on(user),
                    };
                    if end.unwrap() == WorkEnd::Limit {
                        return;
                    }
                    assert!(answers.to_come.borrow().is_empty());
                }
                PlannedAct::Undo => {
                    assert!(agent.undo().unwrap().is_some());
                    user.copy();
                }
                PlannedAct::Compact => assert!(agent.compact(None, user).unwrap().is_some()),
            }
        }
    }
}
