//! Forced calls are complete calls of allowed tools, with arguments that match their schemas,
//! whatever the model would generate.

use crate::families::family::FAMILIES;
use crate::families::scripts::{request, user};
use crate::families::stage::{Act, Answer, Stage};
use api::{ChatRequest, Finish, ToolChoice};
use serde_json::{Value, json};

const SEEDS: u64 = 4;

/// Whether the schemas of the scripts allow the arguments.
fn fits(name: &str, arguments: &str) -> bool {
    let members = match serde_json::from_str(arguments) {
        Ok(Value::Object(members)) => members,
        Ok(_) => return false,
        // No schema bounds the exponents of numbers, but their readers do.
        Err(error) => return error.to_string().starts_with("number out of range"),
    };
    match name {
        "f" => {
            let known = |(key, value): (&String, &Value)| match key.as_str() {
                "s" => value.is_string(),
                "n" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
                "o" => value.is_object(),
                _ => false,
            };
            members.contains_key("s") && members.iter().all(known)
        }
        "g" => members.is_empty(),
        _ => false,
    }
}

pub fn check(stage: &Stage, request: &ChatRequest, answer: &Answer) {
    let name = stage.family.name;
    let text = stage.text(&answer.sampled);
    assert_eq!(answer.finish, Finish::ToolCalls, "{name}: {text}");
    assert!(answer.content.trim().is_empty(), "{name}: {:?} in {text}", answer.content);
    assert!(!answer.calls.is_empty(), "{name}: {text}");
    for call in &answer.calls {
        assert!(!call.broken && fits(&call.name, &call.arguments), "{name}: {call:?} of {text}");
        match &request.tool_choice {
            ToolChoice::Named(name) => assert_eq!(call.name, *name),
            _ => assert!(["f", "g"].contains(&&*call.name)),
        }
    }
    assert!(request.parallel_calls || answer.calls.len() == 1, "{name}: {text}");
}

/// Settings under which the prompt leaves reasoning open, closes it, or says nothing of it.
fn settings(stage: &Stage) -> Vec<Value> {
    match stage.family.thinks {
        true => {
            vec![json!({}), json!({"enable_thinking": true}), json!({"enable_thinking": false})]
        }
        false => vec![json!({})],
    }
}

#[test]
fn forced_calls_are_valid_calls_whatever_the_model_wants() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let mut most = 0;
        for setting in settings(&stage) {
            for (parallel_calls, tool_choice) in [
                (true, ToolChoice::Required),
                (false, ToolChoice::Required),
                (true, ToolChoice::Named("g".into())),
                (false, ToolChoice::Named("f".into())),
            ] {
                let template_kwargs = setting.as_object().unwrap().clone();
                let plain = request(vec![user("q")]);
                let request = ChatRequest { parallel_calls, tool_choice, template_kwargs, ..plain };
                for seed in 0..SEEDS {
                    let answer = stage.ask(&request, Act::Random(seed));
                    check(&stage, &request, &answer);
                    most = most.max(answer.calls.len());
                }
            }
        }
        let single = ["llama", "harmony"].contains(&stage.family.format.name);
        assert_eq!(most > 1, !single, "{}: {most}", stage.family.name);
    }
}

#[test]
fn a_model_that_wants_to_chat_calls_all_the_same() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let family = stage.family;
        let tool_choice = ToolChoice::Named("g".into());
        let request = ChatRequest { tool_choice, ..request(vec![user("q")]) };
        let answer = stage.ask(&request, Act::Say(format!("I would rather not.{}", family.end)));
        if answer.finish != Finish::Length {
            check(&stage, &request, &answer);
        }
    }
}
