//! Calls under a grammar are calls to the parser of the same format, with valid arguments.

use crate::grammar::answers::valid;
use crate::grammar::player::{MARKED, Player, TINY, allowed, pick};
use base::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use text::tool_formats::atem::ATEM;
use text::tool_formats::{harmony::HARMONY, hermes::HERMES, llama::LLAMA, qwen_coder::QWEN_CODER};
use text::{CallGrammar, CompiledGrammar, GrammarSource, Thinking};
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

pub fn source(format: &'static ToolFormat, required: bool, parallel: bool) -> GrammarSource {
    let answer = None;
    GrammarSource::Calls(CallGrammar { format, tools: tools(), required, parallel, answer })
}

pub type NamedArguments = Vec<(String, String)>;

/// The calls that the parser finds in an answer that comes in `pieces`, and the other text.
pub fn read<'a>(
    grammar: &CallGrammar,
    pieces: impl Iterator<Item = &'a str>,
) -> (NamedArguments, String) {
    let (format, tools) = (Some(grammar.format), grammar.tools.clone().into());
    let form = OutputForm { reasoning: Reasoning::Unsplit, format, tools, parallel: true };
    let mut parser = OutputParser::new(&form);
    let mut events: Vec<OutputEvent> = pieces.flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish(false));
    let (mut calls, mut rest) = (NamedArguments::new(), String::new());
    for event in events {
        match event {
            OutputEvent::CallStart { name } => calls.push((name, String::new())),
            OutputEvent::CallArguments(piece) => calls.last_mut().unwrap().1.push_str(&piece),
            OutputEvent::CallEnd => {}
            OutputEvent::Content(piece) | OutputEvent::Reasoning(piece) => rest.push_str(&piece),
            OutputEvent::CallBroken => panic!("a call of {:?} broke off", calls.last()),
        }
    }
    (calls, rest)
}

/// The calls that the parser finds in a random answer, and the other text.
fn calls(player: &Player, source: &GrammarSource, seed: u64) -> (NamedArguments, String) {
    let GrammarSource::Calls(grammar) = source else { panic!("{source:?}") };
    let text = player.answer(&player.compile(source), &mut Rng::new(seed));
    read(grammar, [&*text].into_iter())
}

fn check(calls: &[(String, String)]) {
    for (name, arguments) in calls {
        let tool = tools().into_iter().find(|tool| tool.name == *name).unwrap();
        valid(&tool.parameters, arguments);
    }
}

/// Formats whose markers need not be tokens of the vocabulary.
fn writable() -> impl Iterator<Item = &'static ToolFormat> {
    ToolFormat::ALL.iter().copied().filter(|format| !format.reads_answers())
}

#[test]
fn a_required_call_is_a_valid_call_in_every_format() {
    for format in writable() {
        for seed in 0..15 {
            let (calls, rest) = calls(&TINY, &source(format, true, false), seed);
            assert_eq!((calls.len(), rest.trim()), (1, ""), "{format}");
            check(&calls);
        }
    }
}

#[test]
fn parallel_calls_follow_each_other() {
    for format in writable() {
        let counts: Vec<usize> = (0..25)
            .map(|seed| {
                let (calls, _) = calls(&TINY, &source(format, true, true), seed);
                check(&calls);
                calls.len()
            })
            .collect();
        let many = counts.iter().any(|count| *count > 1);
        assert_eq!(many, format != &LLAMA, "{format}: {counts:?}");
    }
}

#[test]
fn a_call_that_the_model_begins_itself_is_held_to_its_tool() {
    for format in [&HERMES, &QWEN_CODER, &LLAMA] {
        let compiled = TINY.compile(&source(format, false, true));
        let start = match format.name {
            "llama" => "{\"name\": \"",
            "qwen-coder" => "Well:<tool_call>\n<function=",
            _ => "Well:<tool_call>\n{\"name\": \"",
        };
        let accepts = |text: &str| {
            let options = text::EncodeOptions { parse_special: true, ..Default::default() };
            let ids = TINY.assets.tokenizer.encode(text, options).unwrap();
            let mut matcher = compiled.start();
            ids.iter().all(|id| matcher.accept(*id).is_ok())
        };
        assert!(accepts("Hello { there }.") || format == &LLAMA);
        assert!(accepts("Hello."));
        assert!(accepts(&format!("{start}sum")), "{format}");
        assert!(!accepts(&format!("{start}other")), "{format}");
    }
}

#[test]
fn reasoning_comes_before_a_required_call() {
    let source = source(&HERMES, true, false);
    let compiled = TINY.compiler.compile(&source, Thinking::Open).unwrap();
    let text = TINY.answer(&compiled, &mut Rng::new(3));
    let (_, call) = text.split_once("</think>").unwrap();
    assert!(call.trim_start().starts_with("<tool_call>\n{\"name\": \""), "{text}");
}

#[test]
fn tools_that_cannot_be_held_to_are_refused() {
    let with = |name: &str, parameters: Value, format| {
        let tools = vec![ToolSignature { name: name.into(), parameters }];
        let (required, parallel, answer) = (true, false, None);
        let calls = CallGrammar { format, tools, required, parallel, answer };
        TINY.compiler.compile(&GrammarSource::Calls(calls), Thinking::None).map(drop)
    };
    let refused = |name, parameters, format, words: &str| {
        let error = with(name, parameters, format).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("a b", Value::Null, &HERMES, "letters");
    refused("a", json!({"not": {}}), &HERMES, "#/not");
    refused("a", json!({"type": "array"}), &QWEN_CODER, "an object");
    refused("a", Value::Null, &HARMONY, "<|start|>");
    let named = json!({"type": "object", "properties": {"a>": {}}, "required": ["a>"]});
    refused("a", named, &QWEN_CODER, "the format of calls cannot write it");
    for format in writable() {
        with("a", Value::Null, format).unwrap();
    }
}

/// Random arguments, and the schema that allows no others. A string can end no tag.
fn constant(rng: &mut Rng) -> (Value, Value) {
    let words =
        ["a", "é", "😀", "\"", "\\", "\n", " ", "\t", "{", "]", "<", "</", ">", "1", "null"];
    let (mut arguments, mut properties) = (json!({}), json!({}));
    for at in 0..rng.below(4) {
        let text: String = (0..rng.below(6)).map(|_| words[pick(rng, words.len())]).collect();
        let number = rng.below(2000) as i64 - 1000;
        let values = [
            json!(text),
            json!(number),
            json!(number as f64 / 8.0),
            json!(number > 0),
            Value::Null,
            json!([number, text, []]),
            json!({"key": text, "inner": {}}),
        ];
        let value = values[pick(rng, values.len())].clone();
        let mut schema = json!({"const": value});
        if value.is_string() {
            schema["type"] = "string".into();
        }
        properties[format!("key-{at}")] = schema;
        arguments[format!("key-{at}")] = value;
    }
    let required: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
    let schema = json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false});
    (arguments, schema)
}

/// The names of tools in the order in which they stand in `text`.
fn names_in<'a>(text: &str, arguments: &'a BTreeMap<String, Value>) -> Vec<&'a str> {
    let at = |start: usize| {
        let names = arguments.keys().filter(|name| text[start..].starts_with(&***name));
        names.max_by_key(|name| name.len()).map(String::as_str)
    };
    text.char_indices().filter_map(|(start, _)| at(start)).collect()
}

fn check_round_trip(player: &Player, format: &'static ToolFormat, seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut arguments, mut tools) = (BTreeMap::new(), Vec::new());
    for name in ["zq_find", "zq_find.all-9"] {
        let (value, parameters) = constant(&mut rng);
        arguments.insert(name.to_owned(), value);
        tools.push(ToolSignature { name: name.into(), parameters });
    }
    let (required, parallel, answer) = (true, seed.is_multiple_of(2), None);
    let grammar = CallGrammar { format, tools, required, parallel, answer };
    let compiled = player.compile(&GrammarSource::Calls(grammar.clone()));
    let text = player.answer(&compiled, &mut rng);
    let mut written = names_in(&text, &arguments);
    if format == &ATEM {
        // A call is a message to its tool.
        written = written.into_iter().step_by(2).collect();
    }
    assert!(!written.is_empty(), "{format}: {text}");
    let ends: Vec<usize> = text.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
    for size in 1..=ends.len() {
        let mut start = 0;
        let pieces = ends.chunks(size).map(|ends| {
            let end = *ends.last().unwrap();
            &text[std::mem::replace(&mut start, end)..end]
        });
        let (calls, _) = read(&grammar, pieces);
        let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, written, "{format} in pieces of {size}: {text}");
        for (name, json) in calls {
            let found: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(found, arguments[&name], "{format} in pieces of {size}: {text}");
        }
    }
}

#[test]
fn forced_calls_round_trip_through_the_parser() {
    for format in ToolFormat::ALL {
        for seed in 0..8 {
            check_round_trip(&MARKED, format, seed);
            if !format.reads_answers() {
                check_round_trip(&TINY, format, seed);
            }
        }
    }
}

/// Whether a text has a format.
type Check = fn(&str) -> bool;

/// Formats of answers with their checks.
fn answers() -> Vec<(GrammarSource, Check)> {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["n"], "additionalProperties": false});
    let is_object = |text: &str| serde_json::from_str(text).is_ok_and(|it: Value| it.is_object());
    let has_n = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        value["n"].is_number() && value.as_object().unwrap().len() == 1
    };
    vec![
        (GrammarSource::JsonSchema(schema), has_n),
        (GrammarSource::JsonObject, is_object),
        (GrammarSource::Regex("yes{1,3}|no".into()), |text| text == "no" || text.starts_with("ye")),
        (GrammarSource::Lark("start: \"(\" start \")\" | \"x\"".into()), |text| text.contains('x')),
        (GrammarSource::Choice(vec!["red".into(), "green".into()]), |t| {
            ["red", "green"].contains(&t)
        }),
    ]
}

/// Reads back a random answer that is calls or text in a format; returns whether it is calls.
fn check_either(
    player: &Player,
    grammar: &CallGrammar,
    compiled: &CompiledGrammar,
    (seed, fits): (u64, Check),
) -> bool {
    let text = player.answer(compiled, &mut Rng::new(seed));
    let (calls, rest) = read(grammar, [&*text].into_iter());
    check(&calls);
    // Messages before the answer are content too.
    let messages = grammar.format.reads_answers();
    let rest = if messages { text.rsplit("<|message|>").next().unwrap() } else { rest.trim() };
    match calls.len() {
        0 => assert!(fits(rest), "{}: {text}", grammar.format),
        _ => assert!(messages || rest.is_empty(), "{}: {text}", grammar.format),
    }
    assert!(grammar.parallel || calls.len() <= 1, "{}: {text}", grammar.format);
    !calls.is_empty()
}

/// Returns whether calls and texts both occur among random answers. Every required call is an
/// answer, too.
fn check_beside(player: &Player, format: &'static ToolFormat, parallel: bool) -> [bool; 2] {
    let mut found = [false; 2];
    let required = player.compile(&source(format, true, parallel));
    for (answer, fits) in answers() {
        let answer = Some(Box::new(answer));
        let grammar = CallGrammar { format, tools: tools(), required: false, parallel, answer };
        let compiled = player.compile(&GrammarSource::Calls(grammar.clone()));
        for seed in 0..12 {
            let called = check_either(player, &grammar, &compiled, (seed, fits));
            found[usize::from(called)] = true;
            let (ids, _) = player.play(&required, &mut Rng::new(seed));
            let mut matcher = compiled.start();
            let taken = ids.iter().all(|id| matcher.accept(*id).is_ok());
            assert!(taken && (matcher.is_complete() || allowed(&mut matcher).1), "{format}");
        }
    }
    found
}

#[test]
fn an_answer_beside_tools_is_calls_or_text_in_its_format() {
    for format in ToolFormat::ALL {
        for parallel in [false, true] {
            assert_eq!(check_beside(&MARKED, format, parallel), [true; 2], "{format}");
            if !format.reads_answers() {
                assert_eq!(check_beside(&TINY, format, parallel), [true; 2], "{format}");
            }
        }
    }
}

#[test]
fn a_required_call_has_no_format_beside_it() {
    for format in ToolFormat::ALL {
        let answer = Some(Box::new(GrammarSource::Choice(vec!["red".into()])));
        let (required, parallel) = (true, false);
        let grammar = CallGrammar { format, tools: tools(), required, parallel, answer };
        let text = MARKED
            .answer(&MARKED.compile(&GrammarSource::Calls(grammar.clone())), &mut Rng::new(1));
        let (calls, rest) = read(&grammar, [&*text].into_iter());
        assert_eq!(calls.len(), 1, "{format}: {text}");
        // Messages of other channels may come before a call.
        assert!(format.reads_answers() || rest.trim().is_empty(), "{format}: {text}");
    }
}
