//! A turn that a template renders is parsed as the same turn, in pieces of any length.

use crate::families::family::{FAMILIES, Family};
use crate::families::scripts::{request, result, tools, user};
use crate::families::stage::Stage;
use base::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use text::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolSignature};

/// A turn: reasoning, content, and calls with their arguments.
type Turn = (String, String, Vec<(String, Value)>);

fn arguments() -> [Value; 3] {
    let text =
        "say \"hi\"\n\\ back\ttab é 🙂 </tool_call> <|x|> </think> ``` ]} &lt; & </ <｜DSML｜x";
    [
        json!({"s": text, "n": -3, "o": {"k": [1, 2.5, null, true, {"z": "a\"b\\"}], "": {}}}),
        json!({"s": ""}),
        json!({"o": {"deep": [[[{"x": "</parameter>"}]]]}, "s": "  spaces  \n"}),
    ]
}

fn form() -> OutputForm {
    let signature = |tool: &Value| ToolSignature {
        name: tool["function"]["name"].as_str().unwrap().to_owned(),
        parameters: tool["function"]["parameters"].clone(),
    };
    let tools: Arc<[ToolSignature]> = tools().iter().map(signature).collect();
    OutputForm { reasoning: Reasoning::Unsplit, format: None, tools, parallel: true }
}

/// What a parser makes of an answer that comes in pieces of up to `most` characters.
fn read(form: &OutputForm, text: &str, most: u64) -> Turn {
    let mut parser = OutputParser::new(form);
    let (mut rng, mut chars) = (Rng::new(most), text.chars().peekable());
    let mut events = Vec::new();
    while chars.peek().is_some() {
        let piece: String = chars.by_ref().take(1 + rng.below(most) as usize).collect();
        events.extend(parser.push(&piece));
    }
    events.extend(parser.finish(false));
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            OutputEvent::Reasoning(text) => reasoning.push_str(&text),
            OutputEvent::Content(text) => content.push_str(&text),
            OutputEvent::CallStart { name } => calls.push((name, String::new())),
            OutputEvent::CallArguments(text) => calls.last_mut().unwrap().1.push_str(&text),
            OutputEvent::CallEnd => {}
            OutputEvent::CallBroken => panic!("a call broke: {text}"),
        }
    }
    let parsed = |(name, arguments): (String, String)| {
        let arguments = serde_json::from_str(&arguments);
        (name, arguments.unwrap_or_else(|e| panic!("{e}: {text}")))
    };
    (reasoning, content, calls.into_iter().map(parsed).collect())
}

/// The assistant's part of the rendered conversation.
fn written(stage: &Stage, messages: Vec<Value>) -> String {
    let Family { name, header, end, .. } = stage.family;
    let mut request = request(messages);
    request.add_generation_prompt = false;
    request.template_kwargs.insert("thinking".into(), true.into());
    let text = stage.service.render(&request).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (_, turn) = text.split_once(header).unwrap_or_else(|| panic!("{name}: {text}"));
    let (turn, _) = turn.split_once(end).unwrap_or_else(|| panic!("{name}: {text}"));
    turn.to_owned()
}

fn check(stage: &Stage, turn: &Turn, behind: &[Value]) {
    let (reasoning, content, calls) = turn;
    let family = stage.family;
    let call = |(at, (name, arguments)): (usize, &(String, Value))| {
        json!({"id": format!("call0000{at}"), "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let content = if content.is_empty() { Value::Null } else { content.as_str().into() };
    let mut message = json!({"role": "assistant", "content": content, "tool_calls": calls});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.as_str().into();
    }
    let messages = [&[user("q"), message][..], behind].concat();
    let text = written(stage, messages);
    let reasoning = if family.thinks { Reasoning::Possible } else { Reasoning::Unsplit };
    let form = OutputForm { reasoning, format: Some(family.format), ..form() };
    for most in [1, 4, 10_000] {
        assert_eq!(read(&form, &text, most), *turn, "{} by {most}: {text}", family.name);
    }
}

#[test]
fn turns_that_a_template_writes_are_read_back() {
    for stage in FAMILIES.iter().filter_map(Stage::of) {
        let family = stage.family;
        let [hard, empty, deep] = arguments();
        let one = |arguments: &Value| ("f".to_owned(), arguments.clone());
        let none = ("g".to_owned(), json!({}));
        let mut all =
            vec![vec![one(&hard)], vec![one(&empty)], vec![one(&deep)], vec![none.clone()]];
        if family.many {
            all.extend([vec![one(&hard), one(&deep)], vec![none, one(&empty), one(&hard)]]);
        }
        for calls in all {
            let result = |at: usize| result(&format!("call0000{at}"), "r");
            let results: Vec<Value> = (0..calls.len()).map(result).collect();
            for reasoning in ["", "I think:\n\nso, é"] {
                for content in ["", "Let me\nsee é."] {
                    let turn = (
                        if family.reasoning { reasoning } else { "" }.to_owned(),
                        if family.content { content } else { "" }.to_owned(),
                        calls.clone(),
                    );
                    check(&stage, &turn, &[]);
                    check(&stage, &turn, &results);
                }
            }
        }
    }
}
