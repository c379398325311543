//! Malformed and truncated answers: no conversation continues from their tokens. The text of a
//! malformed call is returned as content, a truncated call stays as far as it came.

use crate::families::family::FAMILIES;
use crate::families::scripts::{ODD, SHORT, calls, request, result, user};
use crate::families::stage::{Act, Answer, Stage};
use api::Finish;
use serde_json::{Value, json};

/// A history with the answer in it is rendered by the template, as by a service that has never
/// seen it.
fn check_forgotten(stage: &Stage, answer: &Answer) {
    let call = |call: &crate::families::stage::Heard| {
        let arguments = serde_json::from_str(&call.arguments);
        let arguments: Value = arguments.unwrap_or_else(|_| json!(call.arguments));
        json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": arguments}})
    };
    // The template may have room for one.
    let Some(call) = answer.calls.first().map(call) else { return };
    let id = answer.calls[0].id.as_str();
    let message = json!({"role": "assistant", "content": answer.content, "tool_calls": [call]});
    let history = request(vec![user("q"), message, result(id, "r")]);
    let fresh = Stage::of(stage.family).unwrap();
    let (seen, fresh) =
        (stage.service.prepare_chat(&history), fresh.service.prepare_chat(&history));
    assert_eq!(
        seen.map(|it| it.prompt().to_vec()).ok(),
        fresh.map(|it| it.prompt().to_vec()).ok(),
        "{}",
        stage.family.name
    );
}

/// Nothing of `text` is lost but markers and white space.
fn check_text(stage: &Stage, text: &str, answer: &Answer) {
    let whole: Vec<_> = answer.calls.iter().filter(|call| !call.broken).collect();
    if whole.is_empty() {
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        let (found, given) = (plain(&answer.content), plain(text));
        assert_eq!(found, given, "{}", stage.family.name);
    }
    for call in whole {
        let parsed = serde_json::from_str::<Value>(&call.arguments);
        assert!(parsed.is_ok_and(|value| value.is_object()), "{}: {call:?}", stage.family.name);
    }
}

#[test]
fn answers_cut_anywhere_keep_what_came_of_their_calls_and_are_forgotten() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let family = stage.family;
        let made: &[(&str, &str)] =
            if family.many { &[("f", ODD), ("g", SHORT)] } else { &[("f", ODD)] };
        let text = calls(family.format, made);
        let ids = stage.ids(&text);
        let end = format!("{text}{}", family.end);
        let whole = stage.ask(&request(vec![user("q")]), Act::Say(end));
        for cut in 1..ids.len() {
            let text = stage.tokenizer.decode(&ids[..cut], false);
            if stage.ids(&text) != ids[..cut] {
                continue;
            }
            let answer = stage.ask(&request(vec![user("q")]), Act::Say(text.clone()));
            assert_eq!(answer.finish, Finish::Length, "{}: {text}", family.name);
            check_cut(&answer, &whole, &text);
            check_forgotten(&stage, &answer);
        }
    }
}

/// A truncated answer is the beginning of the whole one, and no text of a call is its content.
fn check_cut(answer: &Answer, whole: &Answer, text: &str) {
    assert_eq!(answer.content, "", "{text}");
    assert!(answer.calls.len() <= whole.calls.len(), "{text}");
    for (at, (call, full)) in answer.calls.iter().zip(&whole.calls).enumerate() {
        let last = at + 1 == answer.calls.len();
        let same = call.arguments == full.arguments;
        // DSML closes the object of a call that has all that its tool requires.
        let begins = full.arguments.starts_with(call.arguments.trim_end_matches('}'));
        assert!(same || last && begins, "{text}: {call:?}");
        assert!(!call.broken && call.name == full.name, "{text}: {call:?}");
    }
}

#[test]
fn broken_calls_are_text_and_are_forgotten() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let family = stage.family;
        let good = calls(family.format, &[("f", "{\"o\": {\"a\": 1}, \"s\": \"x\"}")]);
        let spoilt = [
            good.replace("1}", "1 nope}"),
            good.replace("1}", "1]"),
            calls(family.format, &[("unknown", "{}")]),
            good.replace("1}", "[1}"),
        ];
        for text in spoilt {
            assert_ne!(text, good);
            let end = format!("{text}{}", family.end);
            let answer = stage.ask(&request(vec![user("q")]), Act::Say(end));
            assert!(matches!(answer.finish, Finish::StopId(_)), "{}: {text}", family.name);
            assert!(answer.calls.iter().all(|call| call.broken), "{}: {text}", family.name);
            check_text(&stage, &text, &answer);
            check_forgotten(&stage, &answer);
        }
    }
}

#[test]
fn an_answer_with_a_whole_and_a_broken_call_is_forgotten() {
    for stage in FAMILIES.iter().filter_map(Stage::of).filter(|stage| stage.family.many) {
        let family = stage.family;
        let both =
            calls(family.format, &[("g", SHORT), ("f", "{\"o\": {\"a\": 1}, \"s\": \"x\"}")]);
        let text = format!("{}{}", both.replace("1}", "1 nope}"), family.end);
        let answer = stage.ask(&request(vec![user("q")]), Act::Say(text));
        assert!(matches!(answer.finish, Finish::StopId(_)), "{}: {:?}", family.name, answer.finish);
        assert!(!answer.calls[0].broken && answer.calls.iter().skip(1).all(|call| call.broken));
        check_forgotten(&stage, &answer);
    }
}
