//! A budget closes the reasoning, and the answer continues after it.

use crate::families::family::FAMILIES;
use crate::families::scripts::{ODD, calls, request, user};
use crate::families::stage::{Act, Stage};
use api::{ChatRequest, Finish, ToolChoice};
use serde_json::{Value, json};
use text::GrammarSource;

const BUDGET: usize = 7;
const LONG: &str = "well well well well well well well well well well";

fn asked(setting: &Value) -> ChatRequest {
    let template_kwargs = setting.as_object().unwrap().clone();
    let reasoning_budget = Some(BUDGET);
    ChatRequest { template_kwargs, reasoning_budget, ..request(vec![user("q")]) }
}

/// Each family that thinks, with settings under which it begins itself, or its prompt does.
fn thinkers() -> Vec<(Stage, Value, &'static str)> {
    let mut all = Vec::new();
    for family in FAMILIES.iter().filter(|family| family.thinks) {
        for setting in [json!({}), json!({"enable_thinking": true})] {
            let Some(stage) = Stage::of(family) else { continue };
            let text = stage.service.render(&asked(&setting)).unwrap();
            let open = if text.trim_end().ends_with("<think>") { "" } else { "<think>" };
            all.push((stage, setting, open));
        }
    }
    all
}

#[test]
fn reasoning_ends_with_its_budget_and_the_rest_is_the_answer() {
    for (stage, setting, open) in thinkers() {
        let name = stage.family.name;
        let text = format!("{open}{LONG}{}", stage.family.end);
        let answer = stage.ask(&asked(&setting), Act::Say(text));
        assert!(matches!(answer.finish, Finish::StopId(_)), "{name}: {:?}", answer.finish);
        assert!(!answer.reasoning.is_empty() && LONG.starts_with(&answer.reasoning), "{name}");
        let (said, rest) = (answer.reasoning.as_str(), answer.content.trim());
        assert_eq!(format!("{said}{rest}").replace(' ', ""), LONG.replace(' ', ""), "{name}");
        assert!(!rest.is_empty(), "{name}");
        // What closes it counts as well.
        assert!((1..=BUDGET + 8).contains(&answer.usage.reasoning_tokens), "{name}");
        assert!(stage.ids(said).len() <= BUDGET, "{name}: {said}");
    }
}

#[test]
fn calls_behind_a_budget_are_calls() {
    for (stage, setting, open) in thinkers() {
        let (name, format) = (stage.family.name, stage.family.format);
        let call = calls(format, &[("f", ODD)]);
        // It does not end its reasoning itself.
        let text = format!("{open}ab{LONG}</think>{call}{}", stage.family.end);
        let answer = stage.ask(&asked(&setting), Act::Say(text));
        assert_eq!(answer.finish, Finish::ToolCalls, "{name}: {}", stage.text(&answer.sampled));
        assert_eq!(answer.calls.len(), 1, "{name}");
    }
}

#[test]
fn a_grammar_behind_a_budget_is_followed() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    for (stage, setting, open) in thinkers() {
        let name = stage.family.name;
        let grammar = Some(GrammarSource::JsonSchema(schema.clone()));
        let held = ChatRequest { grammar, tools: Vec::new(), ..asked(&setting) };
        let forced = ChatRequest { tool_choice: ToolChoice::Required, ..asked(&setting) };
        for seed in 0..6 {
            let answer = stage.ask(&held, Act::Random(seed));
            let value: Value = serde_json::from_str(&answer.content)
                .unwrap_or_else(|e| panic!("{name}: {e}: {}", stage.text(&answer.sampled)));
            assert!(value["a"].is_number(), "{name}: {value}");
            assert!(answer.usage.reasoning_tokens <= BUDGET + 8, "{name}");
            let answer = stage.ask(&forced, Act::Random(seed));
            assert_eq!(answer.finish, Finish::ToolCalls, "{name}");
            assert!(answer.usage.reasoning_tokens <= BUDGET + 8, "{name}");
        }
        let text = format!("{open}{LONG}{LONG}");
        let answer = stage.ask(&held, Act::Say(text));
        assert!(answer.content.starts_with("{\"a\":"), "{name}: {}", answer.content);
    }
}
