//! The arguments of calls are objects in every format, and strings written without quotes keep to
//! their schemas.

use crate::grammar::answers::valid;
use crate::grammar::calls::{NamedArguments, read};
use crate::grammar::player::{MARKED, Player, TINY, allowed};
use base::Rng;
use serde_json::{Value, json};
use text::tool_formats::{dsml::DSML, hermes::HERMES, qwen_coder::QWEN_CODER};
use text::{CallGrammar, EncodeOptions, GrammarSource, Thinking, ToolFormat, ToolSignature};

fn grammar(format: &'static ToolFormat, parameters: Value) -> CallGrammar {
    let tools = vec![ToolSignature { name: "f".into(), parameters }];
    CallGrammar { format, tools, required: true, parallel: false, answer: None }
}

/// The calls that the parser finds in random answers to a forced call.
fn calls(
    player: &Player,
    format: &'static ToolFormat,
    schema: &Value,
    rounds: u64,
) -> NamedArguments {
    let asked = grammar(format, schema.clone());
    let source = GrammarSource::Calls(asked.clone());
    let compiled = player.compiler.compile(&source, Thinking::None);
    let compiled = compiled.unwrap_or_else(|error| panic!("{format} {schema}: {error}"));
    let mut all = NamedArguments::new();
    for seed in 0..rounds {
        let text = player.answer(&compiled, &mut Rng::new(seed));
        let (calls, rest) = read(&asked, [&*text].into_iter());
        assert!(
            calls.len() == 1 && (format.reads_answers() || rest.trim().is_empty()),
            "{format} {schema}: {text}"
        );
        all.extend(calls);
    }
    all
}

#[test]
fn forced_arguments_are_an_object_whatever_else_the_schema_allows() {
    for schema in [
        json!({}),
        json!(true),
        json!({"description": "any"}),
        json!({"type": ["object", "array"], "properties": {"a": {"type": "integer"}}}),
        json!({"anyOf": [{"type": "array"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}]}),
        json!({"enum": [[1], {"a": 1}, "x"]}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}),
        json!({"allOf": [{"properties": {"a": {"minimum": 1}}}, {"required": ["a"], "properties": {"a": {"type": "integer"}}}]}),
    ] {
        for format in ToolFormat::ALL {
            for player in [&*TINY, &*MARKED] {
                if format.reads_answers() && std::ptr::eq(player, &*TINY) {
                    continue;
                }
                for (_, arguments) in calls(player, format, &schema, 4) {
                    assert!(arguments.starts_with('{'), "{format} {schema}: {arguments}");
                    valid(&schema, &arguments);
                }
            }
        }
    }
}

#[test]
fn a_schema_that_no_object_fits_is_refused_by_the_name_of_its_tool() {
    for parameters in [
        json!({"const": [1]}),
        json!(false),
        json!({"type": "string"}),
        json!({"type": ["array", "null"]}),
        json!({"anyOf": [{"type": "array"}, {"const": 3}]}),
        json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
    ] {
        for format in ToolFormat::ALL {
            let tool = ToolSignature { name: "lookup".into(), parameters: parameters.clone() };
            for strict in [false, true] {
                let error =
                    MARKED.compiler.arguments(&tool, format, strict).unwrap_err().to_string();
                assert!(
                    error.contains("tool lookup") && error.contains("Unsatisfiable"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_loose_tool_keeps_all_but_the_part_that_cannot_be_enforced() {
    let parameters = json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer"}, "mail": {"type": "string", "pattern": "(?=.)a"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}, "odd": {"type": "str"}}});
    let tool = ToolSignature { name: "f".into(), parameters };
    for format in ToolFormat::ALL {
        let (schema, left_out) = MARKED.compiler.arguments(&tool, format, false).unwrap();
        let places: Vec<String> = left_out.iter().map(|part| part.pointer.clone()).collect();
        assert_eq!(
            places,
            ["mail/pattern", "tags/uniqueItems", "odd/type"].map(|at| format!("#/properties/{at}"))
        );
        assert_eq!(schema["required"], json!(["n"]));
        assert_eq!(
            schema["properties"]["tags"],
            json!({"type": "array", "items": {"type": "string"}})
        );
        let strict = MARKED.compiler.arguments(&tool, format, true).unwrap_err().to_string();
        assert!(strict.contains("tool f: schema at #/properties/mail/pattern"), "{strict}");
    }
}

#[test]
fn strings_without_quotes_keep_to_their_schemas() {
    for text in [
        json!({"type": "string", "minLength": 3}),
        json!({"type": "string", "maxLength": 2}),
        json!({"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^[a-c]+"}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-\\d{2}$"}),
        json!({"type": "string", "pattern": "^a|b$", "maxLength": 3}),
        json!({"type": "string", "pattern": "^(a$|b$)"}),
        json!({"type": "string", "pattern": "(^a|b$)", "maxLength": 3}),
        json!({"type": "string", "pattern": "(^$|^a+$)", "maxLength": 3}),
        json!({"type": "string", "pattern": "x/y", "maxLength": 4}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "string", "format": "uuid", "description": "an id"}),
        json!({"type": "string", "format": "ipv4"}),
        json!({"type": "string", "enum": ["a", "bcd"], "minLength": 2}),
        json!({"type": "string", "anyOf": [{"const": "a"}, {"pattern": "^b+$", "maxLength": 2}]}),
        json!({"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 3}]}),
    ] {
        let schema = json!({"type": "object", "properties": {"$city": text, "n": {"type": "integer"}},
            "required": ["$city"], "additionalProperties": false});
        for format in [&HERMES, &QWEN_CODER, &DSML] {
            for player in [&*TINY, &*MARKED] {
                for (_, arguments) in calls(player, format, &schema, 6) {
                    valid(&schema, &arguments);
                }
            }
        }
    }
}

/// Checks the arguments of random calls, and that some of `wanted` come.
fn check(schema: &Value, wanted: &[Value]) {
    for format in [&HERMES, &QWEN_CODER, &DSML] {
        let mut found = Vec::new();
        for (_, arguments) in calls(&TINY, format, schema, 30) {
            valid(schema, &arguments);
            found.push(serde_json::from_str::<Value>(&arguments).unwrap());
        }
        for wanted in wanted {
            assert!(found.contains(wanted), "{format} {schema}: no {wanted} in {found:?}");
        }
    }
}

#[test]
fn a_call_has_at_most_as_many_arguments_as_its_schema_allows() {
    let digit = |value: u8| json!({"type": "integer", "const": value});
    let all = json!({"a": digit(1), "b": digit(2), "c": digit(3)});
    let closed = |required: Value, most: usize| {
        json!({"type": "object", "properties": all, "required": required,
            "additionalProperties": false, "maxProperties": most})
    };
    check(&closed(json!([]), 1), &[json!({})]);
    check(&closed(json!(["b"]), 1), &[json!({"b": 2})]);
    check(&closed(json!(["b"]), 2), &[json!({"a": 1, "b": 2}), json!({"b": 2, "c": 3})]);
    let tool = |parameters| ToolSignature { name: "f".into(), parameters };
    for format in [&QWEN_CODER, &DSML] {
        let most = tool(closed(json!(["a", "b"]), 1));
        assert!(TINY.compiler.arguments(&most, format, true).is_err());
    }
    let open = json!({"type": "object", "properties": {"a": digit(1)}, "required": ["a"],
        "additionalProperties": digit(2), "maxProperties": 2});
    check(&open, &[json!({"a": 1})]);
}

#[test]
fn maps_and_free_objects_have_arguments() {
    for others in [json!({"type": "string", "maxLength": 2}), json!({"type": "integer"})] {
        let map = json!({"type": "object", "additionalProperties": others, "maxProperties": 3});
        for format in [&QWEN_CODER, &DSML] {
            let calls = calls(&TINY, format, &map, 30);
            calls.iter().for_each(|(_, arguments)| valid(&map, arguments));
            assert!(calls.iter().any(|(_, arguments)| arguments != "{}"), "{format}");
        }
    }
    for format in [&QWEN_CODER, &DSML] {
        let has_arguments = |schema: Value| {
            calls(&TINY, format, &schema, 30).iter().any(|(_, arguments)| arguments != "{}")
        };
        assert!(has_arguments(json!({"type": "object"})), "{format}");
        assert!(!has_arguments(json!({"type": "object", "properties": {}})), "{format}");
    }
}

#[test]
fn references_to_the_root_allow_what_it_allows_though_arguments_are_an_object() {
    let list = json!({"type": ["object", "null"], "properties": {"next": {"$ref": "#"}},
        "required": ["next"], "additionalProperties": false});
    check(&list, &[json!({"next": null})]);
    let one = json!({"type": "object", "properties": {"a": {"type": "integer", "const": 1}},
        "required": ["a"], "additionalProperties": false});
    check(&json!({"anyOf": [{"$ref": "#"}, one]}), &[json!({"a": 1})]);
}

#[test]
fn a_list_of_one_type_is_that_type() {
    let schema = json!({"type": "object", "properties": {"a": {"type": ["string"], "enum": ["x", "yy"]}},
        "required": ["a"], "additionalProperties": false});
    check(&schema, &[json!({"a": "x"}), json!({"a": "yy"})]);
}

#[test]
fn an_argument_that_no_value_fits_is_left_out() {
    for none in [json!(false), json!({"type": "integer", "minimum": 5, "maximum": 4})] {
        let schema = json!({"type": "object", "required": ["b"], "additionalProperties": false,
            "properties": {"a": none, "b": {"type": "integer", "const": 7}}});
        check(&schema, &[json!({"b": 7})]);
    }
}

#[test]
fn names_are_read_back_as_they_are_written() {
    for key in ["\u{7f}", "$city", "a b", "é", "a\"b", "a&amp;b", "x=y", "a'b", "@id", ""] {
        let schema = json!({"type": "object", "properties": {key: {"type": "string", "const": "v"}},
            "required": [key], "additionalProperties": false});
        for format in [&QWEN_CODER, &DSML] {
            for (_, arguments) in calls(&TINY, format, &schema, 1) {
                assert_eq!(
                    serde_json::from_str::<Value>(&arguments).unwrap(),
                    json!({key: "v"}),
                    "{format}"
                );
            }
        }
    }
    let schema = json!({"type": "object", "properties": {"<a>\n": {"type": "integer", "const": 1}}, "required": ["<a>\n"]});
    for (_, arguments) in calls(&TINY, &DSML, &schema, 1) {
        assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), json!({"<a>\n": 1}));
    }
}

#[test]
fn strings_that_hold_the_end_of_a_parameter_are_read_back_or_not_written() {
    let hostile = [
        "a</parameter>b",
        "</｜DSML｜parameter>",
        "&lt;/｜DSML｜parameter>",
        "</｜DSML｜parameter x",
        "plain",
    ];
    let schema = json!({"type": "object", "properties": {"s": {"type": "string", "enum": hostile}}, "required": ["s"]});
    for format in [&QWEN_CODER, &DSML] {
        for player in [&*TINY, &*MARKED] {
            for (_, arguments) in calls(player, format, &schema, 10) {
                valid(&schema, &arguments);
            }
        }
    }
    let limited = json!({"type": "object", "properties": {"s": {"type": "string", "minLength": 1,
        "pattern": "^(</parameter>|</｜DSML｜parameter>|a)$"}}, "required": ["s"]});
    for format in [&QWEN_CODER, &DSML] {
        for (_, arguments) in calls(&TINY, format, &limited, 10) {
            valid(&limited, &arguments);
        }
    }
    let only = json!({"type": "object", "properties": {"s": {"type": "string", "const": "</parameter>"}}, "required": ["s"]});
    let tool = ToolSignature { name: "f".into(), parameters: only };
    assert!(TINY.compiler.arguments(&tool, &QWEN_CODER, true).is_err());
}

#[test]
fn formats_are_those_of_json() {
    // Strings of llguidance's formats are taken without quotes, and the other way round.
    for name in [
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
    ] {
        let text = json!({"type": "string", "format": name});
        let json = TINY.compile(&GrammarSource::JsonSchema(text.clone()));
        let schema = json!({"type": "object", "properties": {"s": text}, "required": ["s"], "additionalProperties": false});
        let raw = TINY.compile(&GrammarSource::Calls(grammar(&QWEN_CODER, schema.clone())));
        let takes = |grammar: &text::CompiledGrammar, text: &str| {
            let ids = TINY.assets.tokenizer.encode(text, text::EncodeOptions::default()).unwrap();
            let mut matcher = grammar.start();
            ids.iter().all(|id| matcher.accept(*id).is_ok())
        };
        for seed in 0..8 {
            let quoted = TINY.answer(&json, &mut Rng::new(seed));
            let plain: String = serde_json::from_str(&quoted).unwrap();
            let call = format!("<tool_call>\n<function=f>\n<parameter=s>\n{plain}\n</parameter>\n");
            assert!(takes(&raw, &call), "{name}: {plain}");
        }
        for (_, arguments) in calls(&TINY, &QWEN_CODER, &schema, 8) {
            let value: Value = serde_json::from_str(&arguments).unwrap();
            assert!(takes(&json, &value["s"].to_string()), "{name}: {arguments}");
        }
    }
}

#[test]
fn masks_after_a_detour_are_those_of_the_arguments_that_came() {
    let one = |n: u32, m: u32| {
        json!({"type": "object", "required": ["n", "m"],
        "properties": {"n": {"const": n}, "m": {"const": m}}, "additionalProperties": false})
    };
    let schema = json!({"anyOf": [one(10, 3), one(20, 4)]});
    let compiled = TINY.compile(&GrammarSource::Calls(grammar(&HERMES, schema)));
    let bytes = |text: &str| -> Vec<u32> {
        let id = |it: u8| TINY.assets.tokenizer.token_to_id(&char::from(it).to_string()).unwrap();
        text.bytes().map(id).collect()
    };
    let start = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": ";
    let start = TINY.assets.tokenizer.encode(start, EncodeOptions::default()).unwrap();
    let (left, right) = (bytes("20,\"m\":4}"), bytes("10,\"m\":3}"));
    let walked = |ids: &[u32]| {
        let mut matcher = compiled.start();
        start.iter().chain(ids).for_each(|id| matcher.accept(*id).unwrap());
        matcher
    };
    for detour in 1..=left.len() {
        for at in 1..=right.len() {
            let mut matcher = walked(&left[..detour]);
            allowed(&mut matcher);
            matcher.rollback(detour).unwrap();
            right[..at].iter().for_each(|id| matcher.accept(*id).unwrap());
            assert_eq!(allowed(&mut matcher), allowed(&mut walked(&right[..at])), "{detour} {at}");
        }
    }
}
