use super::*;
use serde_json::json;

fn render(source: &str) -> Result<String> {
    let special = SpecialTokens { bos: Some("<s>".into()), ..SpecialTokens::default() };
    ChatTemplate::from_source(source)?.render(
        &json!({"x": 1, "eos_token": "<own>"}),
        &special,
        None,
    )
}

fn check(source: &str, expected: &str) {
    assert_eq!(render(source).unwrap_or_else(|e| panic!("{source}: {e}")), expected, "{source}");
}

#[test]
fn variables_come_from_input_then_special_tokens_then_defaults() {
    check("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}", "<s><own>False");
    check("{{ tools is none }}{{ add_generation_prompt }}", "TrueTrue");
}

#[test]
fn generation_blocks_are_scopes_and_only_that() {
    check("{%- generation -%} a{% set x = 2 %} {%- endgeneration %}{{ x }}", "a1");
    check("{% set generation = 3 %}{{ generation }}", "3");
    check("{% raw %}{% generation %}{% endraw %}", "{% generation %}");
}

#[test]
fn line_endings_are_unified() {
    check("{% if x %}\r\na\r\n{% endif %}\r\n", "a\n");
}

#[test]
fn errors_say_where_and_why() {
    let message = |source: &str| render(source).unwrap_err().to_string();
    assert!(message("a\n{{ raise_exception('no ' ~ x) }}").contains("no 1 (in chat:2)"));
    assert!(message("a\n\n{% if %}").contains("syntax error"));
    assert!(message("{{ x.y.z }}").contains("undefined"));
    assert!(message(&"a".repeat(MAX_SOURCE + 1)).contains("expected at most"));
    let no_object = ChatTemplate::from_source("").unwrap();
    let result = no_object.render(&json!([]), &SpecialTokens::default(), None);
    assert!(result.unwrap_err().to_string().contains("object"));
}

#[test]
fn what_is_random_is_refused_by_name() {
    for source in ["{{ [1, 2]|random }}", "{{ lipsum() }}"] {
        assert!(render(source).unwrap_err().to_string().contains("is refused"), "{source}");
    }
    check("{{ lipsum is defined }}{{ 'random' is filter }}", "TrueTrue");
}

#[test]
fn limits_grow_with_the_input() {
    let template =
        ChatTemplate::from_source("{% for m in ms %}{{ m|trim|upper }}{% endfor %}").unwrap();
    let long = "x".repeat(3 << 20);
    let input = json!({"ms": vec![long; 8]});
    let text = template.render(&input, &SpecialTokens::default(), None).unwrap();
    assert_eq!(text.len(), 24 << 20);
}

#[test]
fn deep_input_is_refused_or_rendered() {
    let mut deep = json!(1);
    for _ in 0..90 {
        deep = json!([deep]);
    }
    let template = ChatTemplate::from_source("{{ x|tojson }}{{ x }}").unwrap();
    let render = |x: &Json| template.render(&json!({ "x": x }), &SpecialTokens::default(), None);
    assert!(render(&deep).is_ok());
    for _ in 0..90 {
        deep = json!([deep]);
    }
    assert!(render(&deep).is_err());
}

#[test]
fn times_are_read_as_written() {
    let expected = parse_now("2026-01-02T03:04:05").unwrap();
    assert_eq!(parse_now("2026-01-02T03:04:05+09:00").unwrap(), expected);
    assert!(parse_now("yesterday").is_err());
}
