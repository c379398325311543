//! No source hangs, exhausts memory or panics, and errors state the reason.

use crate::grammar::player::{TINY, pick};
use base::Rng;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use text::tool_formats::qwen_coder::QWEN_CODER;
use text::{CallGrammar, GrammarSource, Thinking, ToolSignature};

/// Far more than any source takes, on a machine with more to do: it takes a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// Compiles `source` and follows it for some tokens: refused or not, it is quick.
fn bounded(source: GrammarSource) -> Result<(), String> {
    let began = Instant::now();
    let compiled = TINY.compiler.compile(&source, Thinking::None);
    let took = began.elapsed();
    assert!(took < PATIENCE, "{took:?}");
    let mut matcher = compiled.map_err(|error| error.to_string())?.start();
    let mut rng = Rng::new(1);
    for _ in 0..50 {
        let mut ids = Vec::new();
        let mask = matcher.mask(|words| {
            ids.extend((0..2048).filter(|id| words[*id / 32] >> (id % 32) & 1 == 1));
        });
        mask.map_err(|error| error.to_string())?;
        let Some(id) = ids.get(pick(&mut rng, ids.len().max(1))) else { break };
        matcher.accept(*id as u32).map_err(|error| error.to_string())?;
    }
    let took = began.elapsed();
    assert!(took < 2 * PATIENCE, "{took:?}");
    Ok(())
}

fn refused(source: GrammarSource, words: &str) {
    let name = format!("{source:?}").chars().take(100).collect::<String>();
    let error = bounded(source).expect_err(&name);
    assert!(error.contains(words), "{name}: {error}");
}

fn schema(schema: Value) -> GrammarSource {
    GrammarSource::JsonSchema(schema)
}

#[test]
fn huge_counts_are_refused_or_cheap() {
    refused(schema(json!({"type": "string", "minLength": 1_000_000_000})), "#/minLength");
    refused(schema(json!({"type": "array", "minItems": 1e300})), "#/minItems");
    for count in [1000, 100_000] {
        let _ = bounded(schema(json!({"type": "string", "minLength": count})));
        let _ = bounded(schema(json!({"type": "string", "maxLength": count})));
        let _ = bounded(schema(
            json!({"type": "array", "items": {"type": "integer"}, "minItems": count}),
        ));
        let _ = bounded(schema(json!({"type": "integer", "multipleOf": count, "minimum": count})));
    }
    let wide = (0..300).fold(json!({}), |inner, _| json!({"anyOf": [inner, {"type": "null"}]}));
    refused(schema(wide), "levels");
    let names: serde_json::Map<String, Value> =
        (0..3000).map(|at| (format!("name{at}"), json!({"type": "string"}))).collect();
    let _ = bounded(schema(json!({"type": "object", "properties": names})));
}

#[test]
fn references_lead_inside_and_to_an_end() {
    refused(schema(json!({"$ref": "https://example.com/schema.json"})), "#/$ref");
    refused(schema(json!({"$ref": "#/$defs/missing"})), "");
    refused(schema(json!({"$ref": "#"})), "");
    refused(
        schema(
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        ),
        "",
    );
    refused(
        schema(json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})),
        "",
    );
    refused(schema(json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1})), "");
    let doubling = |at: usize| json!({"allOf": [{"$ref": format!("#/$defs/{}", at + 1)}, {"$ref": format!("#/$defs/{}", at + 1)}]});
    let mut defs: serde_json::Map<String, Value> =
        (0..40).map(|at| (at.to_string(), doubling(at))).collect();
    defs.insert("40".into(), json!({"type": "string"}));
    let _ = bounded(schema(json!({"$defs": defs, "$ref": "#/$defs/0"})));
}

#[test]
fn definitions_of_many_arguments_are_bounded() {
    let to = json!({"$ref": "#/$defs/x"});
    let properties: serde_json::Map<String, Value> =
        (0..4000).map(|at| (format!("p{at}"), to.clone())).collect();
    let options: Vec<Value> = (0..4000).map(|at| json!({"const": at})).collect();
    let parameters = json!({"type": "object", "properties": properties,
        "$defs": {"x": {"anyOf": options}}});
    let tools = vec![ToolSignature { name: "a".into(), parameters }];
    let (format, answer) = (&QWEN_CODER, None);
    let calls = CallGrammar { format, tools, required: true, parallel: false, answer };
    refused(GrammarSource::Calls(calls), "definitions");
}

#[test]
fn schemas_without_an_answer_are_refused() {
    refused(schema(json!(false)), "");
    refused(schema(json!({"type": "integer", "minimum": 5, "maximum": 4})), "");
    refused(schema(json!({"type": "string", "pattern": "(?=a)b"})), "");
    refused(schema(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]})), "oneOf");
    refused(schema(json!({"type": "nothing"})), "#/type");
}

#[test]
fn regular_expressions_are_bounded() {
    for regex in [
        "(a{1000}){1000}",
        "((a{100}){100}){100}",
        "(.*a){200}",
        "(a|b)*a(a|b){24}",
        "a{1000000000}",
        "(x+x+)+y",
    ] {
        let _ = bounded(GrammarSource::Regex(regex.into()));
    }
    for regex in ["(a{1000}){1000}", "a{1000000000}"] {
        refused(GrammarSource::Regex(regex.into()), "too many expressions");
    }
    let open = "(".repeat(100_000);
    refused(GrammarSource::Regex(open), "");
    refused(GrammarSource::Regex("a".repeat(1 << 20)), "at most");
    refused(GrammarSource::Regex("[".into()), "regex");
    refused(GrammarSource::Regex("(?=a)".into()), "regex");
    refused(GrammarSource::Regex("\\1".into()), "regex");
    // Reasoning before the answer does not hide that there is none.
    let nothing = GrammarSource::Regex("[^\\x00-\\u{10FFFF}]".into());
    for thinking in [Thinking::None, Thinking::Possible, Thinking::Open] {
        let error = TINY.compiler.compile(&nothing, thinking).unwrap_err().to_string();
        assert!(error.contains("found none"), "{error}");
    }
}

#[test]
fn lark_grammars_are_bounded() {
    for lark in [
        "start: start \"a\" | \"a\"",
        "start: start start | \"a\" | \"\"",
        "start: a\na: b\nb: a",
        "start: \"a\"{1000000}",
        "start: (((\"a\"{1000}){1000}){1000}){1000}",
        "start: /(?s:.*)/{100}",
    ] {
        let _ = bounded(GrammarSource::Lark(lark.into()));
    }
    let nested = format!("start: {}\"a\"{}", "(".repeat(50_000), ")".repeat(50_000));
    refused(GrammarSource::Lark(nested), "");
    refused(GrammarSource::Lark("x".repeat(1 << 20)), "at most");
    refused(GrammarSource::Lark("start: missing".into()), "missing");
    refused(GrammarSource::Lark(String::new()), "grammar");
    for lark in ["start: start", "start: A\nA: /a/ & /b/"] {
        refused(GrammarSource::Lark(lark.into()), "found none");
    }
    refused(GrammarSource::Choice(vec![]), "choice");
    refused(GrammarSource::Choice(vec![String::new()]), "choice");
    refused(GrammarSource::Choice(vec!["x".repeat(1 << 20)]), "at most");
    refused(GrammarSource::Lark("start: %json {\"patternProperties\": {\"a\": {}}}".into()), "");
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let pieces = [
            "start:", "\n", "a", "\"b\"", "/c*/", "(", ")", "|", "*", "%json", "{", "}", "[", "]",
            "<[1]>", "é", "\\", "~", "&", "@answer", "{3,}",
        ];
        let text: String =
            (0..rng.below(30)).map(|_| pieces[pick(&mut rng, pieces.len())]).collect();
        let _ = bounded(GrammarSource::Lark(text.clone()));
        let _ = bounded(GrammarSource::Regex(text.clone()));
        let _ = bounded(GrammarSource::Choice(vec![text]));
    }
}

#[test]
fn random_patterns_never_panic() {
    let pieces = [
        "[", "]", "[:", ":]", "^", "$", "-", "\\", "u", "x", "{", "}", "0", "1f", "\\uD83D",
        "p{L}", "d", "(", ")", "|", "*", "a", "\"", "&&", "é", "c", "alpha",
    ];
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let text: String =
            (0..rng.below(12)).map(|_| pieces[pick(&mut rng, pieces.len())]).collect();
        let property = json!({"type": "string", "pattern": text});
        let _ = bounded(schema(json!({"type": "object", "properties": {"p": property}})));
    }
    for pattern in ["[[:]]", "[", "[^", "[\\", "\\", "[a-", "[\\x{110000}]", "\\u{", "\\c", "[\\p{"]
    {
        let _ = bounded(schema(json!({"type": "string", "pattern": pattern})));
    }
}

#[test]
fn a_broken_match_says_so_and_stays_broken() {
    let source = GrammarSource::Choice(vec!["yes".into()]);
    let mut matcher = TINY.compile(&source).start();
    assert!(
        matcher
            .accept(5)
            .unwrap_err()
            .to_string()
            .starts_with("the answer cannot match the grammar")
    );
    assert!(matcher.mask(|_| {}).is_err());
    assert!(!matcher.is_complete());
}
