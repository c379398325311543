use super::*;
use serde_json::json;

fn render(source: &str, input: Json) -> Result<String> {
    let now = NaiveDateTime::parse_from_str("2026-01-02 03:04:05", "%Y-%m-%d %H:%M:%S").unwrap();
    let special = SpecialTokens { bos: Some("<s>".into()), ..SpecialTokens::default() };
    ChatTemplate::from_source(source)?.render(&input, &special, Some(now))
}

fn check(source: &str, expected: &str) {
    let rendered = render(source, json!({"m": {"a": 1, "items": [1.0, null]}, "s": " Hi "}));
    assert_eq!(rendered.unwrap_or_else(|e| panic!("{source}: {e}")), expected, "{source}");
}

#[test]
fn values_print_as_in_python() {
    check(
        "{{ m }}|{{ none }}|{{ true ~ 1.0 ~ [1, 'x'] }}",
        "{'a': 1, 'items': [1.0, None]}|None|True1.0[1, 'x']",
    );
}
