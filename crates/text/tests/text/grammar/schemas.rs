//! Annotations refuse nothing, what cannot be enforced is left out part by part, and references
//! end.

use crate::grammar::answers::valid;
use crate::grammar::numbers::check;
use crate::grammar::player::TINY;
use base::Rng;
use serde_json::{Value, json};
use text::{GrammarSource, Thinking};

fn compile(source: GrammarSource) -> Result<text::CompiledGrammar, String> {
    TINY.compiler.compile(&source, Thinking::None).map_err(|error| error.to_string())
}

fn object(property: Value) -> Value {
    json!({"type": "object", "properties": {"p": property, "n": {"type": "integer"}},
        "required": ["p", "n"], "additionalProperties": false})
}

#[test]
fn annotations_refuse_nothing() {
    for property in [
        json!({"type": "string", "format": "path"}),
        json!({"type": "string", "format": "json-pointer", "contentEncoding": "base64"}),
        json!({"type": "integer", "format": "int64", "x-order": 1, "x-guidance": {}}),
        json!({"type": "string", "enum": ["a"], "enumNames": ["A"], "nullable": true}),
        json!({"oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}],
            "discriminator": {"propertyName": "k", "mapping": {"a": "#/$defs/A"}}}),
    ] {
        let schema = object(property);
        let grammar = compile(GrammarSource::JsonSchema(schema.clone())).unwrap();
        assert!(grammar.left_out().is_empty());
        for seed in 0..5 {
            let value: Value =
                serde_json::from_str(&TINY.answer(&grammar, &mut Rng::new(seed))).unwrap();
            assert!(value["n"].is_i64() || value["n"].is_number(), "{schema}: {value}");
            assert_ne!(value["p"], Value::Null, "{schema}");
        }
    }
}

/// Checks that a loose schema keeps all but the part at `place`, and a strict one names it.
fn check_loose(property: Value, place: &str, kept: Value) {
    let schema = object(property);
    let strict = compile(GrammarSource::JsonSchema(schema.clone())).unwrap_err();
    assert!(strict.contains(place), "{schema}: {strict}");
    let grammar = compile(GrammarSource::LooseSchema(schema.clone())).unwrap();
    let places: Vec<&str> = grammar.left_out().iter().map(|part| &*part.pointer).collect();
    assert_eq!(places, [place], "{schema}");
    for seed in 0..5 {
        valid(&object(kept.clone()), &TINY.answer(&grammar, &mut Rng::new(seed)));
    }
}

#[test]
fn a_loose_schema_leaves_out_only_what_cannot_be_enforced() {
    let at = |key: &str| format!("#/properties/p/{key}");
    let list = json!({"type": "array", "items": {"type": "integer"}, "maxItems": 3});
    let with = |mut schema: Value, key: &str, value: Value| {
        schema[key] = value;
        schema
    };
    check_loose(with(list.clone(), "uniqueItems", json!(true)), &at("uniqueItems"), list.clone());
    check_loose(with(list.clone(), "contains", json!({"const": 1})), &at("contains"), list);
    let text = json!({"type": "string", "maxLength": 9});
    check_loose(with(text.clone(), "pattern", json!("^(?!a)b")), &at("pattern"), text.clone());
    check_loose(with(text.clone(), "not", json!({"const": "a"})), &at("not"), text);
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    check_loose(
        with(map.clone(), "propertyNames", json!({"pattern": "^a"})),
        &at("propertyNames"),
        map.clone(),
    );
    check_loose(with(map.clone(), "if", json!({"required": ["a"]})), &at("if"), map);
}

#[test]
fn options_that_may_hold_together_are_any_of_them_in_a_loose_schema() {
    let schema = object(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}));
    let grammar = compile(GrammarSource::LooseSchema(schema)).unwrap();
    assert_eq!(grammar.left_out()[0].pointer, "#/properties/p/oneOf");
    let kept = object(json!({"type": "number"}));
    for seed in 0..5 {
        valid(&kept, &TINY.answer(&grammar, &mut Rng::new(seed)));
    }
}

#[test]
fn a_loose_schema_without_a_value_is_refused() {
    let empty = object(json!({"type": "integer", "minimum": 5, "maximum": 4}));
    assert!(compile(GrammarSource::LooseSchema(empty)).unwrap_err().contains("Unsatisfiable"));
    assert!(compile(GrammarSource::LooseSchema(json!({"type": "str"}))).is_err());
}

#[test]
fn references_that_lead_to_themselves_are_refused() {
    let cycle = json!({"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}});
    for schema in [
        json!({"$ref": "#/$defs/A", "$defs": cycle}),
        json!({"anyOf": [{"$ref": "#"}]}),
        json!({"allOf": [{"$ref": "#"}], "type": "object"}),
        json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
        json!({"type": ["object"], "required": ["a"], "properties": {"a": {"$ref": "#"}}}),
        json!({"allOf": [{"type": "object"}, {"required": ["a"], "properties": {"a": {"$ref": "#"}}}]}),
        json!({"type": ["array"], "prefixItems": [{"$ref": "#"}], "minItems": 1}),
    ] {
        for source in [GrammarSource::JsonSchema, GrammarSource::LooseSchema] {
            let error = compile(source(schema.clone())).expect_err(&schema.to_string());
            assert!(error.contains("references that lead to themselves"), "{schema}: {error}");
        }
    }
}

#[test]
fn answers_are_without_parts_that_would_never_end() {
    let cycle = json!({"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}});
    let endless = json!({"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}});
    for defs in [cycle, endless] {
        let schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/A"}},
            "additionalProperties": false, "$defs": defs});
        check(&schema.to_string(), &["{}"], &["{\"x\""]);
    }
    let list = json!({"type": "array", "prefixItems": [{"oneOf": [{"$ref": "#/prefixItems/0"}]}]});
    check(&list.to_string(), &["[]"], &["[1]"]);
}

#[test]
fn recursion_that_ends_is_none_of_these() {
    for schema in [
        json!({"type": "array", "items": {"$ref": "#"}}),
        json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}]}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}]}),
        json!({"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"], "additionalProperties": false}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}, "B": {"$ref": "#/$defs/B"}}}),
    ] {
        let grammar = compile(GrammarSource::JsonSchema(schema.clone())).unwrap();
        valid(&schema, &TINY.answer(&grammar, &mut Rng::new(1)));
    }
}

#[test]
fn references_are_found_however_they_are_written() {
    let one = json!({"type": "integer", "const": 1});
    for (reference, defs) in [
        ("#/components/schemas/A", json!({"components": {"schemas": {"A": one}}})),
        ("#/$defs/Foo<Bar>", json!({"$defs": {"Foo<Bar>": one}})),
        ("#/definitions/Page«User»", json!({"definitions": {"Page«User»": one}})),
        ("#A", json!({"$defs": {"a": {"$anchor": "A", "const": 1}}})),
    ] {
        let mut schema = object(json!({"$ref": reference}));
        schema.as_object_mut().unwrap().extend(defs.as_object().unwrap().clone());
        for source in [GrammarSource::JsonSchema, GrammarSource::LooseSchema] {
            let grammar =
                compile(source(schema.clone())).unwrap_or_else(|e| panic!("{schema}: {e}"));
            assert!(grammar.left_out().is_empty(), "{schema}");
            let answer = TINY.answer(&grammar, &mut Rng::new(1));
            assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["p"], 1, "{schema}");
        }
    }
    let anything = json!({});
    check_loose(json!({"$ref": "#/$defs/Mispelt"}), "#/properties/p/$ref", anything.clone());
    check_loose(json!({"$ref": "https://example.com/a"}), "#/properties/p/$ref", anything);
}

#[test]
fn patterns_are_those_of_ecma_and_hold_in_json() {
    let pattern = |text: &str, inside: &[&str], outside: &[&str]| {
        let schema = json!({"type": "string", "pattern": text}).to_string();
        for text in inside {
            check(&schema, &[&*json!(text).to_string()], &[]);
        }
        for text in outside {
            check(&schema, &[], &[&*json!(text).to_string()]);
        }
    };
    pattern("^[a&&b[]$", &["a", "&", "["], &["c", "]"]);
    pattern("^[+--]$", &["+", ",", "-"], &["."]);
    pattern("^[a~~b]$", &["~"], &["c"]);
    pattern("^[A-Z&&[^B]]$", &["A]", "^]"], &["E", "B"]);
    pattern("^[!@#$%^&*()_+\\-=[\\]{};':|,.<>/?]+$", &["[]-<"], &["a"]);
    pattern("^\\<[\\b]\\uD83D\\uDE00$", &["<\u{8}😀"], &["<b😀"]);
    // Sets of all control characters do not hold what escapes are made of.
    pattern("^[^\\\\/:*?\"<>|]+$", &["a b", "\n"], &["\"", "\\", "a:b"]);
    pattern("^[\\u0000-\\u001f]$", &["\n", "\u{1}"], &["\"", "\\", "a"]);
    pattern("^[^ -~]+$", &["é"], &["\\", "\""]);
}

#[test]
fn long_chains_of_references_end_in_an_error_or_an_answer() {
    let mut defs = serde_json::Map::new();
    for at in 0..5000 {
        defs.insert(at.to_string(), json!({"$ref": format!("#/$defs/{}", at + 1)}));
    }
    defs.insert("5000".into(), json!({"type": "null"}));
    for rate in [json!({}), json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5})] {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}, "b": rate}, "$defs": defs});
        let _ = compile(GrammarSource::JsonSchema(schema));
    }
}
