//! Answers have the requested form, and every answer of that form is possible.

use crate::grammar::player::{Player, TINY, allowed};
use base::Rng;
use serde_json::{Value, json};
use text::{GrammarSource, Thinking};

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {
            "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b c", 3, null]}, "maxItems": 3},
        }, "required": ["name", "age"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4}),
        json!({"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}, {"const": {"a": [1, "x"]}}]}),
        json!({"type": "object", "properties": {"at": {"type": "string", "format": "ipv4"},
            "id": {"type": "string", "format": "uuid"}}, "required": ["at", "id"]}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"}),
        json!({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"allOf": [{"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"properties": {"b": {"type": ["string", "integer"]}}, "required": ["b"]}], "type": "object"}),
        json!({"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 5}, "maxProperties": 4}),
        json!({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}),
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false, "minItems": 2}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}],
                "additionalItems": {"type": "boolean"}, "minItems": 2, "maxItems": 4}},
            "required": ["pair"], "additionalProperties": false}),
        json!({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2}),
        json!({"type": "object"}),
    ]
}

pub fn valid(schema: &Value, text: &str) {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // JSON has no bounds for exponents, but this reader has.
        Err(error) if error.to_string().starts_with("number out of range") => return,
        Err(error) => panic!("{text}: {error}"),
    };
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.enable_format_assertions();
    compiler.add_resource("schema.json", schema.clone()).unwrap();
    let index = compiler.compile("schema.json", &mut schemas).unwrap();
    if let Err(error) = schemas.validate(&value, index) {
        panic!("{text} against {schema}: {error}");
    }
}

fn check_schemas(player: &Player, rounds: u64) {
    for schema in schemas() {
        let grammar = player.compile(&GrammarSource::JsonSchema(schema.clone()));
        for round in 0..rounds {
            valid(&schema, &player.answer(&grammar, &mut Rng::new(round)));
        }
    }
}

#[test]
fn every_answer_is_valid_against_its_schema() {
    check_schemas(&TINY, 40);
}

#[test]
fn large_vocabularies_of_every_kind_keep_to_schemas_too() {
    for vocabulary in ["qwen2", "llama-spm", "llama-bpe", "deepseek-llm"] {
        let file = format!("ggml-vocab-{vocabulary}.gguf");
        let Some(player) = Player::shared(&file) else { return };
        check_schemas(&player, 2);
    }
}

#[test]
fn every_answer_matches_its_regular_expression() {
    for regex in ["[a-f]{3,9}( or [0-9]+){0,2}", "(?i:yes|no)", "\\d{3}-\\w+", "é+[^\\n]x", ".*z"]
    {
        let grammar = TINY.compile(&GrammarSource::Regex(regex.into()));
        let whole = fancy_regex::Regex::new(&format!("^(?:{regex})$")).unwrap();
        for seed in 0..40 {
            let text = TINY.answer(&grammar, &mut Rng::new(seed));
            assert!(whole.is_match(&text).unwrap(), "{text:?} and {regex}");
        }
    }
}

#[test]
fn an_answer_is_one_of_the_choices_and_any_may_come() {
    let texts = ["yes", "no", "\"quoted\\", "ye", "yes and no", "a\nb", "<|im_end|>"];
    let source = GrammarSource::Choice(texts.map(String::from).to_vec());
    let grammar = TINY.compile(&source);
    let answers: std::collections::BTreeSet<String> =
        (0..400).map(|seed| TINY.answer(&grammar, &mut Rng::new(seed))).collect();
    assert_eq!(answers, texts.map(String::from).into_iter().collect());
}

#[test]
fn a_lark_grammar_is_followed() {
    let lark = "start: item (\",\" item)*\nitem: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]{1,2}/";
    let grammar = TINY.compile(&GrammarSource::Lark(lark.into()));
    for seed in 0..40 {
        let text = TINY.answer(&grammar, &mut Rng::new(seed));
        let json = format!("[{}]", text.replace('(', "[").replace(')', "]"));
        let digits =
            |text: &str| text.replace(|c: char| c.is_ascii_digit(), "1").replace("11", "1");
        assert!(serde_json::from_str::<Value>(&digits(&json)).is_ok(), "{text}");
    }
}

#[test]
fn json_may_have_a_space_behind_separators_and_no_other() {
    let source = GrammarSource::JsonSchema(json!({"type": "array", "items": {"type": "integer"}}));
    let grammar = TINY.compile(&source);
    let fits = |text: &str| {
        let mut matcher = grammar.start();
        let ids = TINY.assets.tokenizer.encode(text, text::EncodeOptions::default()).unwrap();
        ids.iter().all(|id| matcher.accept(*id).is_ok())
    };
    assert!(fits("[1,2]") && fits("[1, 2,3]"));
    assert!(!fits("[1,  2]") && !fits("[ 1]") && !fits("[1\n]") && !fits("[1 ]"));
}

#[test]
fn reasoning_may_stand_before_the_answer() {
    let source = GrammarSource::Choice(vec!["yes".into(), "no".into()]);
    let compile = |thinking| TINY.compiler.compile(&source, thinking).unwrap();
    let (open, possible) = (compile(Thinking::Open), compile(Thinking::Possible));
    let mut thought = 0;
    for seed in 0..60 {
        let text = TINY.answer(&open, &mut Rng::new(seed));
        let (_, answer) = text.split_once("</think>").unwrap_or_else(|| panic!("{text}"));
        assert!(["yes", "no"].contains(&answer.trim_start()), "{text}");
        let text = TINY.answer(&possible, &mut Rng::new(seed));
        let answer = match text.strip_prefix("<think>") {
            Some(rest) => {
                thought += 1;
                rest.split_once("</think>").unwrap().1.trim_start()
            }
            None => &text,
        };
        assert!(["yes", "no"].contains(&answer), "{text}");
    }
    assert!(thought > 0 && thought < 60, "{thought}");
}

#[test]
fn what_was_rolled_back_leaves_no_trace() {
    for schema in schemas() {
        let grammar = TINY.compile(&GrammarSource::JsonSchema(schema));
        let (ids, _) = TINY.play(&grammar, &mut Rng::new(7));
        let (mut straight, mut detour) = (grammar.start(), grammar.start());
        for (at, id) in ids.iter().enumerate() {
            let there = ids[at..].iter().take(3);
            let steps = there.map(|id| detour.accept(*id).unwrap()).count();
            detour.rollback(steps).unwrap();
            assert_eq!(allowed(&mut straight), allowed(&mut detour));
            straight.accept(*id).unwrap();
            detour.accept(*id).unwrap();
            assert_eq!(straight.is_complete(), detour.is_complete());
        }
    }
}

#[test]
fn no_string_holds_a_control_token() {
    let grammar = TINY.compile(&GrammarSource::JsonSchema(json!({"type": "string"})));
    let mut matcher = grammar.start();
    let quote = TINY.assets.tokenizer.token_to_id("\"").unwrap();
    matcher.accept(quote).unwrap();
    let (ids, may_end) = allowed(&mut matcher);
    assert!(ids.len() > 1000 && !may_end);
    assert!(!ids.iter().any(|id| TINY.assets.tokenizer.is_special(*id)));
}
