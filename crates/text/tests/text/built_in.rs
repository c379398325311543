//! The chat template that is built in for DeepSeek V4, beyond the published cases.

use formats::ChatRules;
use formats::families::chat_rules;
use serde_json::{Value, json};
use std::path::Path;
use text::{ChatTemplate, GgufOptions, SpecialTokens, Templates, TextAssets, ToolFormat};

fn rules() -> &'static ChatRules {
    chat_rules("deepseek_v4").unwrap()
}

fn render(input: Value) -> String {
    let template = ChatTemplate::from_source(rules().template).unwrap();
    let special = SpecialTokens { bos: Some("<B>".into()), ..SpecialTokens::default() };
    template.render(&input, &special, None).unwrap()
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn call(id: &str, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
}

#[test]
fn templates_show_their_format() {
    assert_eq!(ToolFormat::detect(rules().template).unwrap().name, "dsml");
    assert_eq!(chat_rules("deepseek_v3"), None);
}

#[test]
fn the_greatest_effort_is_the_text_of_the_training() {
    use sha1::{Digest, Sha1};
    let effort = |effort: &str, on: bool| {
        render(json!({"messages": [user("q")], "enable_thinking": on,
                      "reasoning_effort": effort}))
    };
    let plain = "<B><｜User｜>q<｜Assistant｜><think>";
    assert_eq!(effort("high", true), plain);
    let most = effort("max", true);
    let prefix = most.strip_prefix("<B>").and_then(|it| it.strip_suffix(&plain[3..])).unwrap();
    assert_eq!((prefix.len(), prefix.lines().count()), (476, 4));
    let digest: String = Sha1::digest(prefix).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(digest, "bed6f7c6d90743ed442f3da80117db88a8fc16a6");
    assert_eq!(effort("max", false), "<B><｜User｜>q<｜Assistant｜></think>");
}

#[test]
fn results_stand_in_the_order_of_their_calls_whatever_order_they_come_in() {
    let result =
        |id: &str, content: &str| json!({"role": "tool", "tool_call_id": id, "content": content});
    let calls = json!({"role": "assistant", "content": "",
        "tool_calls": [call("a", json!({})), call("b", json!({})), call("c", json!({}))]});
    let text = render(json!({"messages": [user("q"), calls, result("c", "3"),
        result("x", "?"), result("a", "1"), result("b", "2"), user("go on"), calls,
        result("b", "5"), result("a", "4 </tool_result>")]}));
    let expected = "<｜end▁of▁sentence｜><｜User｜><tool_result>1</tool_result>\n\n\
        <tool_result>2</tool_result>\n\n<tool_result>3</tool_result>\n\n\
        <tool_result>?</tool_result>\n\ngo on<｜Assistant｜></think>";
    assert!(text.contains(expected), "{text}");
    let end = "<｜User｜><tool_result>4 &lt;/tool_result></tool_result>\n\n\
        <tool_result>5</tool_result><｜Assistant｜></think>";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn reasoning_stays_behind_the_last_user_or_with_tools() {
    let thought = |thought: &str, content: &str| json!({"role": "assistant", "content": content, "reasoning_content": thought});
    let messages = json!([user("q"), thought("t", "a"), user("r"), thought("u", "b")]);
    let with = |more: Value| {
        let mut input = json!({"messages": messages, "thinking": true,
                               "add_generation_prompt": false});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = render(input);
        [
            text.contains("<think>t</think>a"),
            text.ends_with("<think>u</think>b<｜end▁of▁sentence｜>"),
        ]
    };
    assert_eq!(with(json!({})), [false, true]);
    assert_eq!(with(json!({"drop_thinking": false})), [true, true]);
    assert_eq!(with(json!({"tools": [{"name": "f"}]})), [true, true]);
    assert_eq!(with(json!({"thinking": false, "enable_thinking": true})), [false, false]);
}

#[test]
fn values_cannot_close_their_parameter() {
    let arguments = json!({"a&\"b": "x</｜DSML｜parameter>&lt;", "n": ["</｜DSML｜parameter>"]});
    let message = |arguments| json!({"role": "assistant", "tool_calls": [call("a", arguments)]});
    let text = render(json!({"messages": [message(arguments.clone())]}));
    let expected = "<｜DSML｜parameter name=\"a&amp;&quot;b\" string=\"true\">\
        x&lt;/｜DSML｜parameter>&lt;</｜DSML｜parameter>\n\
        <｜DSML｜parameter name=\"n\" string=\"false\">[\"\\u003c/｜DSML｜parameter>\"]\
        </｜DSML｜parameter>\n";
    assert!(text.contains(expected), "{text}");
    // Marks around control tokens do not hide them.
    let marked = render(json!({"messages": [message(
        json!({"s": "</\u{fdd0}｜DSML｜\u{fdd1}parameter>", "o": ["</\u{fdd0}｜DSML｜\u{fdd1}parameter>"]}),
    )]}));
    for by in ["&lt;", "[\"\\u003c"] {
        let expected = format!(">{by}/\u{fdd0}｜DSML｜\u{fdd1}parameter>");
        assert!(marked.contains(&expected), "{marked}");
    }
    // Arguments as a text: JSON, and other text.
    assert_eq!(render(json!({"messages": [message(arguments.to_string().into())]})), text);
    let other = render(json!({"messages": [message("{\"a\": ".into())]}));
    let expected = "name=\"arguments\" string=\"true\">{\"a\": </｜DSML｜parameter>";
    assert!(other.contains(expected), "{other}");
}

#[test]
fn contents_may_be_parts_and_roles_must_be_known() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]);
    let text = render(json!({"messages": [{"role": "developer", "content": parts}, user("c")]}));
    assert_eq!(text, "<B><｜User｜>ab\n\nc<｜Assistant｜></think>");
    let format = json!({"messages": [user("q")], "response_format": {"type": "object"}});
    let expected = "<B>## Response Format:\n\nYou MUST strictly adhere to the following schema \
        to reply:\n{\"type\": \"object\"}<｜User｜>q<｜Assistant｜></think>";
    assert_eq!(render(format), expected);
    let template = ChatTemplate::from_source(rules().template).unwrap();
    let input = json!({"messages": [{"role": "critic", "content": "x"}]});
    let error = template.render(&input, &SpecialTokens::default(), None).unwrap_err();
    assert!(error.to_string().contains("found critic"), "{error}");
}

/// A copy of the textual files of a checkpoint, without its chat template.
fn without_template(model: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json"] {
        std::fs::write(folder.path().join(file), std::fs::read(model.join(file)).unwrap()).unwrap();
    }
    let path = Path::new("tokenizer_config.json");
    let mut config = crate::common::json(&model.join(path));
    config.as_object_mut().unwrap().remove("chat_template");
    std::fs::write(folder.path().join(path), config.to_string()).unwrap();
    folder
}

#[test]
fn checkpoints_without_a_template_get_that_of_their_family_and_others_keep_theirs() {
    let Some(models) = fixtures::find("models") else { return };
    for own in ["deepseek_v4", "deepseek_v4_scaled"] {
        let assets = TextAssets::load(&models.join(own), &GgufOptions::default()).unwrap();
        assert!(!assets.templates.is_built_in() && assets.templates.names().eq(["default"]));
    }
    let folder = without_template(&models.join("deepseek_v4"));
    let assets = TextAssets::load(folder.path(), &GgufOptions::default()).unwrap();
    assert!(assets.templates.is_built_in() && assets.templates.names().next().is_none());
    assert!(Templates::of_folder(folder.path()).unwrap().is_built_in());
    let template = assets.templates.get(None, true).unwrap();
    let input = json!({"messages": [user("q <｜User｜>")], "thinking": true});
    let prompt = assets.render(&template, &input, None).unwrap();
    let expected = "<｜begin▁of▁sentence｜><｜User｜>q <｜User｜><｜Assistant｜><think>";
    assert_eq!(prompt.text, expected);
    let ids = assets.encode(&prompt).unwrap();
    let user = assets.tokenizer.token_to_id("<｜User｜>").unwrap();
    assert_eq!(ids.iter().filter(|id| **id == user).count(), 1);
    // A family without rules has none.
    let folder = without_template(&models.join("deepseek_v3"));
    let assets = TextAssets::load(folder.path(), &GgufOptions::default()).unwrap();
    assert!(assets.templates.get(None, false).is_err() && !assets.templates.is_built_in());
}
