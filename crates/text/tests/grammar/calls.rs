//! Calls under a grammar are calls to the parser of the same format, with valid arguments.

use crate::answers::valid;
use crate::player::{Player, TINY};
use base::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use text::{CallGrammar, GrammarSource, Thinking};
use text::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolFormat, ToolSignature};

fn tools() -> Vec<ToolSignature> {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"], "additionalProperties": false});
    let sum = json!({"type": "object", "properties": {
        "terms": {"type": "array", "items": {"$ref": "#/$defs/term"}, "maxItems": 3}},
        "$defs": {"term": {"type": "number"}}, "required": ["terms"], "additionalProperties": false});
    [("get_weather", weather), ("sum", sum)]
        .map(|(name, parameters)| ToolSignature { name: name.into(), parameters })
        .to_vec()
}

pub fn source(format: ToolFormat, required: bool, parallel: bool) -> GrammarSource {
    GrammarSource::Calls(CallGrammar { format, tools: tools(), required, parallel })
}

/// The calls that the parser finds in a random answer, and the other text.
fn calls(player: &Player, source: &GrammarSource, seed: u64) -> (Vec<(String, String)>, String) {
    let GrammarSource::Calls(grammar) = source else { panic!("{source:?}") };
    let compiled = player.compile(source);
    let text = player.answer(&compiled, &mut Rng::new(seed));
    let tools: Arc<[ToolSignature]> = grammar.tools.clone().into();
    let reasoning = Reasoning::Unsplit;
    let form = OutputForm { reasoning, format: Some(grammar.format), tools, parallel: true };
    let mut parser = OutputParser::new(&form);
    let mut events = parser.push(&text);
    events.extend(parser.finish(false));
    let (mut calls, mut rest) = (Vec::<(String, String)>::new(), String::new());
    for event in events {
        match event {
            OutputEvent::CallStart { name } => calls.push((name, String::new())),
            OutputEvent::CallArguments(piece) => calls.last_mut().unwrap().1.push_str(&piece),
            OutputEvent::CallEnd => {}
            OutputEvent::Content(piece) | OutputEvent::Reasoning(piece) => rest.push_str(&piece),
            OutputEvent::CallBroken => panic!("broken: {text}"),
        }
    }
    (calls, rest)
}

fn check(calls: &[(String, String)]) {
    for (name, arguments) in calls {
        let tool = tools().into_iter().find(|tool| tool.name == *name).unwrap();
        valid(&tool.parameters, arguments);
    }
}

/// Formats whose markers the built-in vocabulary need not have as tokens.
const WRITABLE: [ToolFormat; 7] = [
    ToolFormat::Hermes,
    ToolFormat::QwenCoder,
    ToolFormat::Llama,
    ToolFormat::Mistral,
    ToolFormat::DeepSeekV3,
    ToolFormat::DeepSeekV31,
    ToolFormat::Dsml,
];

#[test]
fn a_required_call_is_a_valid_call_in_every_format() {
    for format in WRITABLE {
        for seed in 0..15 {
            let (calls, rest) = calls(&TINY, &source(format, true, false), seed);
            assert_eq!((calls.len(), rest.trim()), (1, ""), "{format}");
            check(&calls);
        }
    }
}

#[test]
fn parallel_calls_follow_each_other() {
    for format in WRITABLE {
        let counts: Vec<usize> = (0..25)
            .map(|seed| {
                let (calls, _) = calls(&TINY, &source(format, true, true), seed);
                check(&calls);
                calls.len()
            })
            .collect();
        let many = counts.iter().any(|count| *count > 1);
        assert_eq!(many, format != ToolFormat::Llama, "{format}: {counts:?}");
    }
}

#[test]
fn a_call_that_the_model_begins_itself_is_held_to_its_tool() {
    for format in [ToolFormat::Hermes, ToolFormat::QwenCoder, ToolFormat::Llama] {
        let compiled = TINY.compile(&source(format, false, true));
        let start = match format {
            ToolFormat::Llama => "{\"name\": \"",
            ToolFormat::QwenCoder => "Well:<tool_call>\n<function=",
            _ => "Well:<tool_call>\n{\"name\": \"",
        };
        let accepts = |text: &str| {
            let options = text::EncodeOptions { parse_special: true, ..Default::default() };
            let ids = TINY.assets.tokenizer.encode(text, options).unwrap();
            let mut matcher = compiled.start();
            ids.iter().all(|id| matcher.accept(*id).is_ok())
        };
        assert!(accepts("Hello { there }.") || format == ToolFormat::Llama);
        assert!(accepts("Hello."));
        assert!(accepts(&format!("{start}sum")), "{format}");
        assert!(!accepts(&format!("{start}other")), "{format}");
    }
}

#[test]
fn reasoning_comes_before_a_required_call() {
    let source = source(ToolFormat::Hermes, true, false);
    let compiled = TINY.compiler.compile(&source, Thinking::Open).unwrap();
    let text = TINY.answer(&compiled, &mut Rng::new(3));
    let (_, call) = text.split_once("</think>").unwrap();
    assert!(call.trim_start().starts_with("<tool_call>\n{\"name\": \""), "{text}");
}

#[test]
fn tools_that_cannot_be_held_to_are_refused() {
    let with = |name: &str, parameters: Value, format| {
        let tools = vec![ToolSignature { name: name.into(), parameters }];
        let calls = CallGrammar { format, tools, required: true, parallel: false };
        TINY.compiler.compile(&GrammarSource::Calls(calls), Thinking::None).map(drop)
    };
    let refused = |name, parameters, format, words: &str| {
        let error = with(name, parameters, format).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("a b", Value::Null, ToolFormat::Hermes, "letters");
    refused("a", json!({"not": {}}), ToolFormat::Hermes, "#/not");
    refused("a", json!({"anyOf": [{"type": "object"}]}), ToolFormat::QwenCoder, "an object");
    refused("a", Value::Null, ToolFormat::Harmony, "<|start|>");
    let dated =
        json!({"type": "object", "properties": {"at": {"type": "string", "format": "date"}}});
    refused("a", dated, ToolFormat::QwenCoder, "#/properties/at");
    for format in WRITABLE {
        with("a", Value::Null, format).unwrap();
    }
}
