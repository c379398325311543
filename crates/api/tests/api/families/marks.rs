//! The prompts of other turns continue from the marks of a prompt.

use crate::families::family::FAMILIES;
use crate::families::scripts::{ODD, calls, request, result, thought, user};
use crate::families::stage::{Act, Stage};
use api::ChatRequest;
use serde_json::{Value, json};

/// Tokens that a mark may be before the place where another prompt leaves the marked one: the
/// distance below which a mark is not kept, and the header of a message.
const NEAR: usize = 40;

fn thinking(messages: Vec<Value>) -> ChatRequest {
    let template_kwargs = json!({"enable_thinking": true}).as_object().unwrap().clone();
    ChatRequest { template_kwargs, ..request(messages) }
}

fn system() -> Value {
    let text = "The caller knows the subject and wants short answers in plain words. ";
    json!({"role": "system", "content": text.repeat(4)})
}

fn answer(text: &str) -> Value {
    json!({"role": "assistant", "content": text, "reasoning_content": "Let me think about that."})
}

/// The prompt and its marks.
fn marked(stage: &Stage, request: &ChatRequest) -> (Vec<u32>, Vec<usize>) {
    let prepared = stage.service.prepare_chat(request);
    let prepared = prepared.unwrap_or_else(|e| panic!("{}: {e}", stage.family.name));
    (prepared.prompt().to_vec(), prepared.marks().to_vec())
}

/// The greatest mark within the tokens that both prompts begin with is at most `near` tokens before
/// their end, which may also be the end of the first prompt.
fn check(stage: &Stage, one: &ChatRequest, other: &ChatRequest, near: usize) {
    let name = stage.family.name;
    let (prompt, marks) = marked(stage, one);
    let (next, _) = marked(stage, other);
    assert!(marks.is_sorted() && marks.iter().all(|mark| (1..prompt.len()).contains(mark)));
    let common = prompt.iter().zip(&next).take_while(|(a, b)| a == b).count();
    let best = marks.iter().filter(|&&mark| mark <= common).max().copied().unwrap_or(0);
    let found = common == prompt.len() || common - best <= near;
    let text = |end| stage.text(&prompt[..end]);
    assert!(found, "{name}: {marks:?} of {}\n{}\n--\n{}", prompt.len(), text(best), text(common));
}

fn stages() -> impl Iterator<Item = Stage> {
    FAMILIES.iter().filter_map(Stage::of)
}

#[test]
fn a_turn_with_dropped_reasoning_goes_on_from_the_last_mark() {
    for stage in stages() {
        let mut messages =
            vec![system(), user("Who was first?"), answer("Nobody knows."), user("Why?")];
        let first = thinking(messages.clone());
        for said in [answer("Because."), json!({"role": "assistant", "content": "Because."})] {
            let next = [said, user("Really?")];
            let second = thinking([messages.clone(), next.to_vec()].concat());
            check(&stage, &first, &second, 0);
        }
        // The first turn of a conversation, and one without a system text.
        messages.truncate(2);
        for messages in [messages.clone(), messages[1..].to_vec()] {
            let next = [messages.clone(), vec![answer("Adam."), user("And then?")]].concat();
            check(&stage, &thinking(messages), &thinking(next), 0);
        }
    }
}

#[test]
fn an_edited_message_and_another_conversation_go_on_from_marks() {
    for stage in stages() {
        let long = "Some words of a question that is not short. ".repeat(3);
        let turn = |words: &str| vec![user(&format!("{words}: {long}")), answer(&long)];
        let messages = [vec![system()], turn("One"), turn("Two"), vec![user("Three")]].concat();
        let first = thinking(messages.clone());
        // This template puts the system text and the tools before the last message of the user,
        // wherever that is.
        let moves = stage.family.name.starts_with("mistral");
        for kept in if moves { vec![5] } else { vec![5, 3, 1] } {
            let mut other = messages[..kept].to_vec();
            other.push(user("Quite another matter"));
            check(&stage, &first, &thinking(other), NEAR);
        }
    }
}

#[test]
fn turns_behind_remembered_calls_have_marks() {
    for stage in stages() {
        let family = stage.family;
        let mut messages = vec![user("q")];
        let first = thinking(messages.clone());
        let opened = stage.service.render(&first).unwrap().trim_end().ends_with("<think>");
        let thinks = family.thinks || family.format.name == "harmony";
        let before = if thinks { thought(family.format, "why", opened) } else { String::new() };
        let end = if family.format.name == "harmony" { "<|call|>" } else { family.end };
        let said = format!("{before}{}{end}", calls(family.format, &[("f", ODD)]));
        let called = stage.ask(&first, Act::Say(said));
        let long = "and a result of some length ".repeat(8);
        messages.extend([called.message(), result(&called.calls[0].id, &long)]);
        let second = thinking(messages.clone());
        let (prompt, marks) = marked(&stage, &second);
        let remembered = called.prompt.len() + called.sampled.len();
        assert!(prompt.starts_with(&[called.prompt, called.sampled].concat()));
        assert!(marks.iter().all(|&mark| mark > remembered), "{}: {marks:?}", family.name);
        messages.extend([answer("done"), user("and now?")]);
        check(&stage, &second, &thinking(messages), 0);
    }
}
