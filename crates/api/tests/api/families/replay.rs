//! A turn that called tools is returned as JSON, and the conversation continues from its tokens.

use crate::families::family::FAMILIES;
use crate::families::scripts::{ODD, SHORT, calls, request, result, thought, user};
use crate::families::stage::{Act, Answer, Stage};
use api::{ChatRequest, Finish};
use serde_json::{Value, json};

/// The text that the template renders after the first turn of calls, including the end of that
/// turn.
fn canonical(stage: &Stage, request: &ChatRequest) -> String {
    let fresh = Stage::of(stage.family).unwrap();
    let text = fresh.service.render(request).unwrap();
    let (header, end) = (stage.family.header, stage.family.end);
    let start = text.find(header).unwrap_or_else(|| panic!("no {header} in {text}"));
    let at = text[start..].find(end).unwrap_or_else(|| panic!("no {end} in {text}"));
    text[start + at..].to_owned()
}

/// The prompt continues from the tokens of `answer`, followed by the rendered messages after it.
pub fn check(stage: &Stage, answer: &Answer, request: &ChatRequest) {
    let name = stage.family.name;
    let prompt = stage.prompt(request);
    let so_far = [&answer.prompt[..], &answer.sampled].concat();
    let text = stage.text(&prompt);
    assert!(prompt.starts_with(&so_far), "{name}: {}\nis not in\n{text}", stage.text(&so_far));
    let canonical = canonical(stage, request);
    let rest = &prompt[so_far.len()..];
    assert_eq!(rest, stage.ids(&canonical), "{name}: {}\nis not\n{canonical}", stage.text(rest));
}

/// Conversations in which a template may or may not think.
pub fn settings(stage: &Stage) -> Vec<Value> {
    match stage.family.thinks {
        true => {
            vec![json!({}), json!({"enable_thinking": true}), json!({"enable_thinking": false})]
        }
        false => vec![json!({})],
    }
}

fn asked(messages: Vec<Value>, setting: &Value) -> ChatRequest {
    let template_kwargs = setting.as_object().unwrap().clone();
    ChatRequest { template_kwargs, ..request(messages) }
}

/// An answer with these calls, in white space that no template renders.
pub fn said(stage: &Stage, request: &ChatRequest, made: &[(&str, &str)]) -> String {
    let family = stage.family;
    let format = family.format.name;
    let text = stage.service.render(request).unwrap();
    let opened = text.trim_end().ends_with("<think>");
    let thinks = family.thinks || format == "harmony";
    let before = if thinks { thought(family.format, " why é ", opened) } else { String::new() };
    let words = match format {
        // This template renders the text before calls after them.
        "harmony" | "llama" | "deepseek-v3" => "",
        _ => "Let me  see:\n\n\n",
    };
    let end = if format == "harmony" { "<|call|>" } else { family.end };
    format!("{before}{words}{}{end}", calls(family.format, made))
}

fn check_family(stage: &Stage, setting: &Value, made: &[(&str, &str)]) {
    let name = stage.family.name;
    let mut messages = vec![user("q")];
    let first = asked(messages.clone(), setting);
    let text = said(stage, &first, made);
    let answer = stage.ask(&first, Act::Say(text.clone()));
    assert_eq!(answer.finish, Finish::ToolCalls, "{name}: {text}");
    assert_eq!(answer.calls.len(), made.len(), "{name}: {text}");
    messages.push(answer.message());
    messages.extend(answer.calls.iter().map(|call| result(&call.id, "\"r1\" {é}")));
    let second = asked(messages.clone(), setting);
    check(stage, &answer, &second);
    if stage.family.format.name == "mistral" {
        let rest = canonical(stage, &second);
        let nine = answer.calls.iter().map(|call| &call.id[call.id.len() - 9..]);
        nine.for_each(|id| assert!(rest.contains(id), "{id}: {rest}"));
    }
    // Without its text and its reasoning it is the same turn.
    let mut bare = messages.clone();
    bare[1]["content"] = Value::Null;
    check(stage, &answer, &asked(bare, setting));
    let mut thoughtful = messages.clone();
    thoughtful[1]["reasoning_content"] = answer.reasoning.clone().into();
    check(stage, &answer, &asked(thoughtful, setting));
    // A second turn of calls.
    let text = said(stage, &second, &[("g", SHORT)]);
    let again = stage.ask(&second, Act::Say(text));
    assert_eq!(again.finish, Finish::ToolCalls, "{name}");
    let mut further = messages.clone();
    further.extend([again.message(), result(&again.calls[0].id, "r2")]);
    let third = stage.prompt(&asked(further, setting));
    assert!(third.starts_with(&[again.prompt, again.sampled].concat()), "{name}");
    // The answer, and the next question, at which templates drop old reasoning.
    messages.extend([json!({"role": "assistant", "content": "done"}), user("and now?")]);
    check(stage, &answer, &asked(messages, setting));
}

#[test]
fn turns_go_on_from_their_own_tokens_and_then_as_the_template_has_it() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        for setting in settings(&stage) {
            check_family(&stage, &setting, &[("f", ODD)]);
            if stage.family.many {
                check_family(&stage, &setting, &[("f", ODD), ("g", SHORT)]);
            }
        }
    }
}

#[test]
fn a_turn_that_is_cut_off_behind_its_only_call_is_well_formed() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let name = stage.family.name;
        let single = |messages| ChatRequest { parallel_calls: false, ..request(messages) };
        for made in [&[("f", ODD)][..], &[("f", ODD), ("g", SHORT)]] {
            let first = single(vec![user("q")]);
            let answer = stage.ask(&first, Act::Say(said(&stage, &first, made)));
            assert_eq!((answer.calls.len(), &answer.finish), (1, &Finish::ToolCalls), "{name}");
            let messages = vec![user("q"), answer.message(), result(&answer.calls[0].id, "r")];
            let next = single(messages);
            let prompt = stage.prompt(&next);
            let written = stage.text(&prompt);
            let (_, turn) = written.split_once(stage.family.header).unwrap();
            let (turn, _) = turn.split_once(stage.family.end).unwrap();
            for (open, close) in [
                ("<tool_call>", "</tool_call>"),
                ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
                ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
                ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
                ("[TOOL_CALLS]", "]"),
            ] {
                let ends = !turn.contains(open) || turn.trim_end().contains(close);
                assert!(ends, "{name}: {turn}");
                let counts = turn.matches(open).count() <= turn.matches(close).count();
                assert!(counts, "{name}: {turn}");
            }
        }
    }
}
