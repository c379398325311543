//! Chat templates against renderings made by Jinja2 as Hugging Face sets it up.

use crate::common::{data, expect_error, json};
use base::Rng;
use chrono::NaiveDateTime;
use formats::families::chat_rules;
use serde_json::{Value, json};
use std::path::Path;
use text::{ChatTemplate, SpecialTokens};

fn special() -> SpecialTokens {
    let token = |text: &str| Some(text.to_owned());
    SpecialTokens {
        bos: token("<BOS>"),
        eos: token("<EOS>"),
        pad: token("<PAD>"),
        unk: token("<UNK>"),
        ..SpecialTokens::default()
    }
}

fn render(source: &str, input: &Value) -> text::Result<String> {
    let now = NaiveDateTime::parse_from_str("2026-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S").unwrap();
    ChatTemplate::from_source(source)?.render(input, &special(), Some(now))
}

fn check_case(name: &str, source: &str, case: &Value) {
    let result = render(source, &case["input"]);
    match case["rendered"].as_str() {
        Some(expected) => {
            let text = result.unwrap_or_else(|e| panic!("{name}: {e}\n{}", case["input"]));
            assert_eq!(text, expected, "{name}: {}", case["input"]);
        }
        None => assert!(result.is_err(), "{name}: expected an error for {}", case["input"]),
    }
}

fn check_folder(folder: &Path) -> usize {
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let file = json(&path.with_extension("json"));
        for (name, case) in file.as_object().unwrap() {
            check_case(&format!("{} {name}", path.display()), &source, case);
            cases += 1;
        }
    }
    cases
}

#[test]
fn published_templates_render_as_in_hugging_face() {
    let Some(templates) = fixtures::find("templates") else { return };
    assert!(check_folder(&templates) > 50);
}

#[test]
fn own_template_data_renders_as_in_hugging_face() {
    assert!(check_folder(&data("templates")) > 10);
}

/// The cases of a published family, rendered by a template that is built in.
fn check_built_in(family: &str, cases: &Path) {
    let source = chat_rules(family).expect("the family has rules").template;
    for (name, case) in json(cases).as_object().unwrap() {
        check_case(&format!("{family} {name}"), source, case);
    }
}

#[test]
fn built_in_templates_give_the_bytes_of_the_published_ones() {
    check_built_in("deepseek_v4", &data("templates/deepseek-ai-DeepSeek-V4.json"));
    if let Some(cases) = fixtures::find("templates/deepseek-ai-DeepSeek-V4.json") {
        check_built_in("deepseek_v4", &cases);
    }
}

/// Templates that write the day before the first message, so that their prefix is another one each
/// day.
const DATED: &[&str] = &["meta-llama-Llama-3.1-8B-Instruct", "openai-gpt-oss-120b"];

/// The prompt before the text of the first message of the user, which names the folder.
fn prefix(source: &str, folder: &str, day: &str) -> String {
    let now = text::parse_now(&format!("{day}T03:04:05")).unwrap();
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let function = json!({"name": "read", "description": "Reads.", "parameters": parameters});
    let user = format!("{folder} on linux. It is {day}.");
    let input = json!({
        "messages": [
            {"role": "system", "content": "You work."}, {"role": "user", "content": user},
        ],
        "tools": [{"type": "function", "function": function}],
    });
    let template = ChatTemplate::from_source(source).unwrap();
    let input = template.with_defaults(input, Some(now));
    let text = template.render(&input, &special(), Some(now)).unwrap();
    let (before, after) = text.split_once(&user).unwrap();
    assert!(before.contains("You work."), "{text}");
    assert!(!after.contains("Reads."), "{text}");
    before.to_owned()
}

#[test]
fn the_prompt_prefix_is_the_same_everywhere() {
    let Some(folder) = fixtures::find("templates") else { return };
    let (mut dated, mut checked) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jinja") {
            continue;
        }
        checked += 1;
        let source = std::fs::read_to_string(&path).unwrap();
        let here = prefix(&source, "/here", "2026-01-02");
        assert_eq!(here, prefix(&source, "/there/or/there", "2026-01-02"), "{}", path.display());
        if here != prefix(&source, "/here", "2026-02-03") {
            dated.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    dated.sort();
    assert_eq!(dated, DATED);
    assert!(checked >= 9, "{checked}");
}

/// A conversation as agents have them: all roles, calls with results in their order, reasoning.
fn conversation(rng: &mut Rng) -> Value {
    let mut some = |share: u64| rng.below(share) == 0;
    let mut messages = Vec::new();
    if some(2) {
        messages.push(json!({"role": "system", "content": "S\n"}));
    }
    for turn in 0..4 {
        let role = if some(5) { "developer" } else { "user" };
        messages.push(json!({"role": role, "content": format!("u{turn} <b>")}));
        if some(4) {
            messages.push(json!({"role": "system", "content": format!("s{turn}")}));
        }
        let mut answer = json!({"role": "assistant", "content": if some(3) { "" } else { "ä" }});
        if some(2) {
            answer["reasoning_content"] = "why\n".into();
        }
        if some(2) {
            let call = |id: &str, arguments| {
                json!({"id": id, "type": "function",
                "function": {"name": "f", "arguments": arguments}})
            };
            let many = json!({"s": "x < \"y\"", "n": 1.5, "o": {"k": [null, true]}, "e": ""});
            answer["tool_calls"] = json!([call("a", many), call("b", json!({}))]);
            messages.push(answer);
            for id in ["a", "b"] {
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": "r\n"}));
            }
            if some(2) {
                messages.push(json!({"role": "assistant", "content": "so"}));
            }
        } else if some(4) {
            break;
        } else {
            messages.push(answer);
        }
    }
    let mut input = json!({ "messages": messages });
    for (name, values) in [
        ("add_generation_prompt", json!([false])),
        ("thinking", json!([true, false])),
        ("enable_thinking", json!([true, false])),
        ("drop_thinking", json!([true, false])),
        ("reasoning_effort", json!(["max", "high"])),
        ("response_format", json!([{"type": "object", "properties": {"a": {"enum": ["ü"]}}}])),
        (
            "tools",
            json!([[], [{"type": "function", "function": {"name": "f", "strict": true}},
                              {"type": "function", "function": {"name": "g"}}]]),
        ),
    ] {
        let values = values.as_array().unwrap();
        if let Some(value) = values.get(rng.below(3) as usize) {
            input[name] = value.clone();
        }
    }
    input
}

#[test]
fn the_built_in_template_of_deepseek_v4_renders_conversations_as_the_published_one() {
    let Some(published) = fixtures::find("templates/deepseek-ai-DeepSeek-V4.jinja") else { return };
    let published = std::fs::read_to_string(published).unwrap();
    let source = chat_rules("deepseek_v4").unwrap().template;
    let mut rng = Rng::new(4);
    for _ in 0..1000 {
        let input = conversation(&mut rng);
        assert_eq!(render(source, &input).unwrap(), render(&published, &input).unwrap(), "{input}");
    }
}

/// Snippets of the language, rendered by Jinja2 3.1 in the same setting.
#[test]
fn the_language_is_jinja2s() {
    check_snippets("jinja2.json");
    check_snippets("constructs.json");
}

fn check_snippets(name: &str) {
    let file = json(&data(name));
    let mut different = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let source = case["source"].as_str().unwrap();
        let result = render(source, &file["input"]);
        match (case["rendered"].as_str(), result) {
            (Some(expected), Ok(text)) if text == expected => {}
            (None, Err(_)) => {}
            (expected, found) => different.push(format!("{source}\n  {expected:?}\n  {found:?}")),
        }
    }
    assert!(different.is_empty(), "{} differ\n{}", different.len(), different.join("\n"));
}

#[test]
fn malformed_checkpoint_templates_are_errors() {
    let Some(checkpoints) = fixtures::find("malformed/checkpoints") else { return };
    let input = json!({"messages": [{"role": "user", "content": "hi"}]});
    for (name, words) in
        [("chat_template_bad_syntax", "syntax error"), ("chat_template_endless", "")]
    {
        let folder = checkpoints.join(name);
        let config = json(&folder.join("tokenizer_config.json"));
        let result = render(config["chat_template"].as_str().unwrap(), &input);
        expect_error(name, result.map(|_| ()), words);
    }
}

#[test]
fn hostile_templates_are_errors_in_little_time_and_memory() {
    for source in [
        "{{ 'a' * 10**9 }}",
        "{{ range(10**9)|list }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ 'a'|center(10**9) }}",
        "{{ 'a'|indent(10**9, true) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 10**10**10 }}",
        "{{ ([0] * 10**9)|length }}",
        "{{ 'x'.ljust(10**12) }}",
        "{% set x = 'ab' * 4000000 %}{% for i in range(90000) %}{% if 'c' in x %}{% endif %}{% endfor %}",
        "{% set x = 'ab' * 4000000 %}{% for i in range(90000) %}{{ x[7000000] }}{% endfor %}",
        "{% set x = 'ab' * 4000000 %}{% for i in range(90000) %}{% if x|length == 1 %}{% endif %}{% endfor %}",
    ] {
        let start = std::time::Instant::now();
        let result = render(source, &json!({"messages": []}));
        assert!(result.is_err(), "{source}");
        assert!(start.elapsed().as_secs() < 20, "{source} took {:?}", start.elapsed());
    }
}

#[test]
fn deep_nesting_is_an_error_not_an_overflow() {
    let deep = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(5000), close.repeat(5000))
    };
    for source in [
        deep("{% if x %}", "a", "{% endif %}"),
        format!("{{{{ {} }}}}", deep("(", "1", ")")),
        format!("{{{{ {} }}}}", deep("[", "1", "]")),
        format!("{{{{ {}1 }}}}", "not ".repeat(20_000)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(20_000)),
        format!("{{{{ x{} }}}}", "|trim".repeat(20_000)),
        format!("{{{{ x{} }}}}", ".a".repeat(20_000)),
    ] {
        assert!(render(&source, &json!({})).is_err(), "{}", &source[..40]);
    }
}
