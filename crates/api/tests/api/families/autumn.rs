//! Families whose arguments are plain text between tags, and whose reasoning stands between tags or
//! in messages of its own: reading, forced calls, budgets and replay.

use crate::families::family::{AUTUMN, Family};
use crate::families::scripts::{request, result, user};
use crate::families::stage::{Act, Stage};
use crate::families::{forced, replay};
use api::{ChatRequest, Finish, ToolChoice};
use serde_json::{Value, json};
use text::{GrammarSource, ToolFormat};

fn stages() -> impl Iterator<Item = Stage> {
    AUTUMN.iter().map(|family| Stage::of(family).expect("its template is at hand"))
}

/// The format that the template shows, with the suffix of tags.
fn format(family: &Family) -> &'static ToolFormat {
    ToolFormat::detect(&family.template().unwrap()).unwrap()
}

/// An answer of a model of the family: reasoning, and calls or text.
fn answer(family: &Family, opened: bool, thought: &str, calls: &[(&str, Value)]) -> String {
    let format = format(family);
    let written = format.written(calls.iter().map(|(name, arguments)| (*name, arguments)));
    let end = family.end;
    if format.reads_answers() {
        let next = if calls.is_empty() { " to=user<|message|>done" } else { &written };
        return format!(" to=self<|message|>{thought}<|eom|><|start|>assistant{next}{end}");
    }
    let [open, close] = format.reasoning_tags();
    let open = if opened { "" } else { open };
    let text = if calls.is_empty() { "done" } else { "" };
    format!("{open}{thought}{close}{text}{written}{end}")
}

fn settings() -> [Value; 3] {
    [json!({}), json!({"enable_thinking": true}), json!({"enable_thinking": false})]
}

fn asked(messages: Vec<Value>, setting: &Value) -> ChatRequest {
    let template_kwargs = setting.as_object().unwrap().clone();
    ChatRequest { template_kwargs, ..request(messages) }
}

/// An answer with these calls, names with the JSON of their arguments.
pub fn said(stage: &Stage, request: &ChatRequest, made: &[(&str, &str)]) -> String {
    let arguments = |text: &str| serde_json::from_str(text).unwrap();
    let made: Vec<_> = made.iter().map(|(name, text)| (*name, arguments(text))).collect();
    continued(stage, request, &made)
}

/// What continues the prompt of a request.
fn continued(stage: &Stage, request: &ChatRequest, made: &[(&str, Value)]) -> String {
    let family = stage.family;
    let (is_open, is_closed) = opened(stage, request);
    let text = answer(family, is_open, "why é", made);
    match is_closed {
        true => text.split_once(format(family).reasoning_tags()[1]).unwrap().1.to_owned(),
        false => text,
    }
}

/// Whether the prompt of a request opens the reasoning, and whether it closes it.
fn opened(stage: &Stage, request: &ChatRequest) -> (bool, bool) {
    let text = stage.service.render(request).unwrap();
    let [open, close] = format(stage.family).reasoning_tags();
    (text.trim_end().ends_with(open), text.trim_end().ends_with(close))
}

fn calls() -> [(&'static str, Value); 2] {
    let f = json!({"s": " say \"hi\"\n<b> & ]", "n": -3, "o": {"k": [1, {"l": "x"}]}});
    [("f", f), ("g", json!({}))]
}

#[test]
fn formats_and_their_suffixes_are_detected() {
    for family in &AUTUMN {
        let found = format(family).name;
        let (base, suffix) = found.split_once(':').unwrap_or((found, ""));
        assert_eq!(base, family.format.name, "{}", family.name);
        assert_eq!(suffix, if family.name == "hy3" { "opensource" } else { "" });
    }
}

#[test]
fn reasoning_and_calls_are_read_and_turns_go_on_from_their_tokens() {
    for (stage, setting) in stages().flat_map(|stage| {
        let family = stage.family;
        settings().map(move |setting| (Stage::of(family).unwrap(), setting))
    }) {
        let (family, made) = (stage.family, calls());
        let first = asked(vec![user("q")], &setting);
        let text = continued(&stage, &first, &made);
        let is_closed = opened(&stage, &first).1;
        let heard = stage.ask(&first, Act::Say(text.clone()));
        assert_eq!(heard.finish, Finish::ToolCalls, "{}: {text}", family.name);
        assert_eq!(heard.reasoning, if is_closed { "" } else { "why é" }, "{}", family.name);
        assert_eq!(heard.content, "", "{}: {text}", family.name);
        let found: Vec<(&str, Value)> = heard
            .calls
            .iter()
            .map(|call| (&*call.name, serde_json::from_str(&call.arguments).unwrap()))
            .collect();
        assert_eq!(found, made, "{}: {text}", family.name);
        let mut messages = vec![user("q"), heard.message()];
        messages.extend(heard.calls.iter().map(|call| result(&call.id, "r é")));
        replay::check(&stage, &heard, &asked(messages, &setting));
    }
}

#[test]
fn calls_that_the_template_renders_are_read_back() {
    for stage in stages() {
        let family = stage.family;
        let made = calls();
        let call = |(at, (name, arguments)): (usize, &(&str, Value))| {
            json!({"id": format!("call0000{at}"), "type": "function",
                "function": {"name": name, "arguments": arguments}})
        };
        let rendered: Vec<Value> = made.iter().enumerate().map(call).collect();
        let turn = json!({"role": "assistant", "content": "", "tool_calls": rendered,
            "reasoning_content": "so"});
        let request =
            ChatRequest { add_generation_prompt: false, ..request(vec![user("q"), turn]) };
        let text = stage.service.render(&request).unwrap();
        let (_, turn) = text.split_once(family.header).unwrap();
        let turn = turn.strip_suffix(family.end).unwrap_or(turn.trim_end()).to_owned();
        let first = asked(vec![user("q")], &json!({}));
        let turn = match opened(&stage, &first).0 {
            true => turn.replacen(format(family).reasoning_tags()[0], "", 1),
            false => turn,
        };
        let end = if turn.ends_with(family.end) { "" } else { family.end };
        let heard = stage.ask(&first, Act::Say(format!("{turn}{end}")));
        let found: Vec<(&str, Value)> = heard
            .calls
            .iter()
            .map(|call| (&*call.name, serde_json::from_str(&call.arguments).unwrap()))
            .collect();
        assert_eq!((&*heard.reasoning, found), ("so", made.to_vec()), "{}: {text}", family.name);
    }
}

#[test]
fn forced_calls_are_valid_calls() {
    for stage in stages() {
        let mut most = 0;
        for setting in settings() {
            for (parallel_calls, tool_choice) in
                [(true, ToolChoice::Required), (false, ToolChoice::Named("f".into()))]
            {
                let asked = asked(vec![user("q")], &setting);
                let request = ChatRequest { parallel_calls, tool_choice, ..asked };
                for seed in 0..4 {
                    let heard = stage.ask(&request, Act::Random(seed));
                    forced::check(&stage, &request, &heard);
                    most = most.max(heard.calls.len());
                }
            }
        }
        assert!(most > 1, "{}", stage.family.name);
    }
}

#[test]
fn answers_with_a_schema_follow_reasoning_in_the_tags_of_the_family() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    for stage in stages() {
        for setting in settings() {
            let grammar = Some(GrammarSource::JsonSchema(schema.clone()));
            let asked = asked(vec![user("q")], &setting);
            let held = ChatRequest { grammar, tools: Vec::new(), ..asked };
            for seed in 0..4 {
                let heard = stage.ask(&held, Act::Random(seed));
                let name = stage.family.name;
                let value: Value = serde_json::from_str(&heard.content)
                    .unwrap_or_else(|e| panic!("{name}: {e}: {}", stage.text(&heard.sampled)));
                assert!(value["a"].is_number(), "{name}: {value}");
            }
        }
    }
}

#[test]
fn budgets_close_reasoning_with_the_tag_of_the_family() {
    const LONG: &str = "well well well well well well well well well well";
    for stage in stages().filter(|stage| stage.family.thinks) {
        let (family, [open, _]) = (stage.family, format(stage.family).reasoning_tags());
        for setting in [json!({}), json!({"enable_thinking": true})] {
            let budget = Some(5);
            let asked =
                ChatRequest { reasoning_budget: budget, ..asked(vec![user("q")], &setting) };
            let open = if opened(&stage, &asked).0 { "" } else { open };
            let heard = stage.ask(&asked, Act::Say(format!("{open}{LONG}{}", family.end)));
            let (said, rest) = (heard.reasoning.trim(), heard.content.trim());
            assert!(!said.is_empty() && !rest.is_empty(), "{}: {heard:?}", family.name);
            assert_eq!(format!("{said}{rest}").replace(' ', ""), LONG.replace(' ', ""));
        }
    }
}
